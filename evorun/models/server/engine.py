"""The `server` engine: an OpenAI-compatible chat-completions endpoint, or several that serve the same model."""

import asyncio
import glob
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from jinja2 import TemplateError
from msgspec import UNSET

from evorun.errors import ConfigError, EngineError, read_duration
from evorun.fields import NonNegativeFloat, NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.models.adapters import HELD, Adapter, ModelUnderAdapter, read_adapter
from evorun.models.base import Completion, LanguageModel, Message, Reply, Request, make_rejection
from evorun.models.channels import Channels
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.keys import check_variable_name, read_key
from evorun.models.server.adapters import AdapterLoader
from evorun.models.server.dispatcher import Dispatcher, Refusal
from evorun.models.server.endpoint import Endpoint
from evorun.models.server.http import ENVIRONMENT, Failure, HttpTransport
from evorun.models.server.messages import one_line
from evorun.models.server.pool import EndpointPool
from evorun.models.server.retry import RetryPolicy
from evorun.models.server.token_prompts import TokenPrompts
from evorun.models.server.wire import CHAT, STRUCTURED_OUTPUTS, TOKENS, RequestEncoder, read_draw
from evorun.models.urls import checked_url

log = logging.getLogger(__name__)


@dataclass
class ServerConfig(EngineConfig):
    """Schema of `conf/engine/server.yaml`."""

    served_by_vllm = True

    name: str = "server"
    base_urls: list[str] = field(default_factory=lambda: ["http://localhost:8000/v1"])
    """URLs of servers of the same model, with the version part of the path (`/v1`); a request goes to the server that
    was lately sent most of its prompt's beginning, or else to the one that is expected to answer first. The default is
    that of `vllm serve`."""
    url_files: str | None = None
    """Files with such URLs, one per line, in place of `base_urls` (`/shared/servers/*.url`). They are read whenever the
    engine opens, so that a resumed run finds servers that a cluster has put on other nodes. Null: none."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key. Null sends no key."""
    proxy: str | None = None
    """URL of an HTTP proxy (`http://proxy:3128`), or `environment`: HTTP_PROXY, HTTPS_PROXY and NO_PROXY decide. Null
    connects directly."""
    concurrency: PositiveInt = 64
    """Most requests in flight per server. `ours`."""
    timeout: PositiveFloat = 600.0
    """Most seconds per attempt, from sending to the last byte of the answer; fewer once answers show how long they
    take. `ours`."""
    connect_timeout: PositiveFloat = 10.0
    """Seconds to connect, and for the check of each server when the engine opens. `ours`."""
    max_outage: str = "30m"
    """Time that calls wait while no server answers anything: seconds, or a number with s, m or h. `ours`."""
    max_retries: NonNegativeInt = 8
    """Attempts after the first, of a request that fails while others are answered; where others hardly ever fail, it is
    refused after two or three. `ours`."""
    backoff_base: NonNegativeFloat = 0.25
    """Seconds; the upper bound of the first wait, doubled with each retry. `ours`."""
    backoff_cap: NonNegativeFloat = 2.0
    """Most seconds between attempts, except for Retry-After and outages. `ours`."""
    max_retry_after: NonNegativeFloat = 300.0
    """Seconds; a server that asks for longer waits than this (a used-up daily quota, say) is an error. `ours`."""
    structured_outputs: Annotated[str, OneOf(STRUCTURED_OUTPUTS)] = "json_schema"
    """Form of schemas in requests. json_schema: as `response_format` of that type, enforced (OpenAI, vLLM, SGLang).
    json_object: any JSON object is enforced, the schema is not sent (DeepSeek's API). none: left to the prompt."""
    max_tokens_field: Annotated[str, OneOf(("max_tokens", "max_completion_tokens"))] = "max_tokens"
    """max_tokens | max_completion_tokens (for OpenAI's reasoning models)."""
    send_seed: bool = True
    """Send the request's sampling seed; some vendors refuse the field."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Fields added to every request's body (`reasoning_effort: low`, `top_k: 20`). They override evorun's own; a null
    removes a field that the server refuses (`temperature: null`)."""
    held_adapters: PositiveInt = HELD
    """Adapters that a server keeps loaded; training sets as many as its rollouts need (`training.max_lag`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.base_urls:
            raise ConfigError("engine.base_urls: expected at least one URL, got an empty list")
        self.base_urls = [checked_url("engine.base_urls", url) for url in self.base_urls]
        check_variable_name("engine.api_key_env", self.api_key_env)
        if self.proxy not in (None, ENVIRONMENT):
            self.proxy = checked_url("engine.proxy", self.proxy)
        read_duration("engine.max_outage", self.max_outage)

    @property
    def choice(self) -> str:
        return "openai" if any("//api.openai.com" in url for url in self.base_urls) else self.name

    @property
    def billed(self) -> bool:
        return True

    @property
    def lacks_digits(self) -> str | None:
        if self.choice == "openai":
            return "OpenAI's API, whose schemas describe only objects"
        return None if self.structured_outputs == "json_schema" else f"structured_outputs={self.structured_outputs}"

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        return trains or model.by_token_ids

    def for_adapters(self, rank: int, held: int) -> "ServerConfig":
        return replace(self, held_adapters=held)

    def for_confidence(self, *, ends_early: bool) -> "ServerConfig":
        if ends_early:
            raise ConfigError(
                "engine=server: cannot end a completion for its low confidence, as the method asks; use engine=vllm or "
                "engine=transformers, or a mode that draws whole completions"
            )
        return self

    def require(self, model: ModelConfig) -> None:
        read_key(self.api_key_env)
        self.read_urls()

    def read_urls(self) -> list[str]:
        """Return the servers' URLs. Raises EngineError when the files have none, ConfigError for one that is no URL."""
        if self.url_files is None:
            return self.base_urls
        files = sorted(glob.glob(str(Path(self.url_files).expanduser())))
        try:
            lines = [line.strip() for file in files for line in Path(file).read_text(errors="replace").splitlines()]
        except OSError as error:
            raise EngineError(f"engine.url_files: cannot read {error.filename}: {error.strerror}") from error
        if not any(lines):
            raise EngineError(
                f"engine.url_files: expected a server's URL in {self.url_files}, found none; start the servers, which "
                "write theirs once they answer"
            )
        return [checked_url("engine.url_files", line) for line in dict.fromkeys(lines) if line]

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Connect, check that at least one server answers, and load the model's adapter where it has one.

        Raises EngineError when no server answers within `connect_timeout`, the key's variable is not set, a server
        refuses the key, or one does not load the adapter.
        """
        adapter = None if model.adapter is None else await asyncio.to_thread(read_adapter, model.adapter)
        served = ServerModel(replace(self, base_urls=self.read_urls()), model, read_key(self.api_key_env), adapter)
        try:
            await served.check()
        except BaseException:
            await served.close()
            raise
        return served


class ServerModel:
    """One model behind one or more chat-completions servers."""

    def __init__(
        self, config: ServerConfig, model: ModelConfig, key: str | None, adapter: Adapter | None = None
    ) -> None:
        """adapter: the adapter under which the model is served."""
        self.name = model.identity
        self._model = model
        self._adapter = adapter
        self._for_views: list[Adapter] = []
        """Adapters loaded for views, oldest first."""
        self._config = config
        self._http = HttpTransport(total=config.timeout, connect=config.connect_timeout, key=key, proxy=config.proxy)
        outage = read_duration("engine.max_outage", config.max_outage)
        self._pool = EndpointPool(config.base_urls, config.concurrency, outage, config.max_retry_after)
        policy = RetryPolicy(config.max_retries, config.backoff_base, config.backoff_cap, config.max_retry_after)
        self._loader = AdapterLoader(
            self._http, self._pool, model.id, policy, config.connect_timeout, config.held_adapters
        )
        self._dispatcher = Dispatcher(
            self._http, self._pool, policy, config.timeout, self._advice(), before_probe=self._loader.restore
        )
        self._encoder = self._encoder_for(model.id)
        self._prompts = TokenPrompts(model, self._dispatcher)
        self._warned: set[str] = set()

    def _encoder_for(self, served_name: str) -> RequestEncoder:
        return RequestEncoder(
            self._model,
            served_name=served_name,
            max_tokens_field=self._config.max_tokens_field,
            structured_outputs=self._config.structured_outputs,
            send_seed=self._config.send_seed,
            extra_body=self._config.extra_body,
        )

    def _advice(self) -> dict[int, str]:
        """Return advice for a status that every request would get."""
        variable = self._config.api_key_env
        key = (
            f"check the API key in the environment variable {variable}"
            if variable
            else "it seems to want an API key: name the environment variable that holds it in engine.api_key_env"
        )
        return {
            401: key,
            403: key,
            404: f"check model.id ('{self._model.id}') and engine.base_urls (a base URL mostly ends in /v1)",
            407: "the proxy wants a password: put it in HTTPS_PROXY (HTTP_PROXY) and set engine.proxy=environment",
        }

    async def check(self) -> None:
        """Check that servers answer, and load the model's own adapter where it has one.

        Raises EngineError when no server answers, or one does not load the adapter. Servers that do not answer while
        others do are avoided at first, with a warning.
        """
        endpoints = self._pool.endpoints
        causes = await asyncio.gather(*(self._probe(endpoint) for endpoint in endpoints))
        silent = [(endpoint, cause) for endpoint, cause in zip(endpoints, causes, strict=True) if cause]
        if len(silent) == len(endpoints):
            listed = "; ".join(f"{endpoint.url} unreachable: {cause}" for endpoint, cause in silent)
            raise EngineError(f"{listed}; start the server or correct engine.base_urls")
        for endpoint, cause in silent:
            self._pool.mark_down(endpoint, cause)
            self._pool.warn_of_outage(endpoint)
        if self._adapter is not None:
            await self._loader.load(self._adapter)
            self._encoder = self._encoder_for(self._loader.requested_name(self._adapter))

    async def complete(self, request: Request) -> Reply:
        return await self._answer(request, self._encoder)

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return the model under an adapter, whose folder the servers must be able to read."""
        if self._adapter is not None:
            raise EngineError(
                f"model '{self.name}' is served under an adapter, and no server stacks another on it; merge the "
                "first into a separate model, or set model.adapter=null"
            )
        adapter = await asyncio.to_thread(read_adapter, folder)
        await self._loader.load(adapter)
        self._for_views = [*(held for held in self._for_views if held.digest != adapter.digest), adapter]
        if len(self._for_views) > self._config.held_adapters:
            await self._loader.unload(self._for_views.pop(0))
        encoder = self._encoder_for(self._loader.requested_name(adapter))
        return ModelUnderAdapter(name, partial(self._answer, encoder=encoder))

    async def _answer(self, request: Request, encoder: RequestEncoder) -> Reply:
        """Answer one request; where a server returns too few completions, ask again with the next seeds."""
        asked = request.sampling.confidence
        if asked is not UNSET and asked.minimum is not None:
            return make_rejection(request, "engine=server cannot end a completion for its low confidence")
        prompt: list[int] | None = None
        channels: Channels | None = None
        if request.token_ids or request.seen is not None or self._model.by_token_ids:
            try:
                prompt = await self._prompts.token_ids(request, encoder)
            except (TemplateError, ValueError) as unfit:
                return make_rejection(request, one_line(str(unfit)))
            channels = self._prompts.channels
        if channels is not None or self._model.by_token_ids:
            request = msgspec.structs.replace(request, token_ids=True)
        stops = [] if channels is None else channels.stops
        completions: list[Completion] = []
        prompt_tokens, cached_tokens = 0, 0
        error: str | None = None
        max_tokens = request.sampling.n * request.sampling.max_tokens
        control = partial(_control, request, encoder, prompt, stops)
        call = self._dispatcher.new_call(control, max_tokens, CHAT if prompt is None else TOKENS)
        while (drawn := len(completions)) < request.sampling.n:
            # vLLM refuses n > 1 at temperature 0.
            n = request.sampling.n - drawn if request.sampling.temperature > 0 else 1
            body = encoder.encode(request, n=n, drawn=drawn, prompt=prompt, stops=stops)
            response = await self._dispatcher.send(body, call)
            if isinstance(response, Refusal):
                self._warn_once("refused", "the server refuses a request: %s", response.reason)
                if completions:  # paid for, but a reply is refused as a whole
                    call.record_wasted("incomplete", sum(completion.tokens for completion in completions))
                reply = make_rejection(request, response.reason, prompt_tokens=prompt_tokens, seconds=call.seconds)
                return msgspec.structs.replace(reply, wasted=call.wasted or UNSET)
            draw = read_draw(response, request, n, channels)
            completions += draw.completions
            prompt_tokens += draw.prompt_tokens
            cached_tokens += draw.cached_tokens
            error = error or draw.error
            if draw.estimated:
                self._warn_once("usage", "the server reports no token usage: tokens are estimated from text length")
        redactor = self._http.redactor
        return Reply(
            completions=tuple(
                msgspec.structs.replace(completion, text=redactor.text(completion.text)) for completion in completions
            ),
            prompt_tokens=prompt_tokens,
            seconds=call.seconds,
            error=redactor.message(error) if error else None,
            prompt_ids=tuple(prompt) if prompt is not None and request.token_ids else UNSET,
            wasted=call.wasted or UNSET,
            cached_tokens=cached_tokens or UNSET,
        )

    async def close(self) -> None:
        """Close all connections; calls under way end with EngineError."""
        self._dispatcher.close()
        self._prompts.close()
        await self._http.close()

    async def _probe(self, endpoint: Endpoint) -> str | None:
        """Return why a server is unreachable, or None. Raises EngineError for a refused key or a redirect."""
        # Other answers pass, 403 and 404 too: some keys may not list models, and some servers have no /models.
        answer = await self._http.get(f"{endpoint.url}/models", self._config.connect_timeout)
        if isinstance(answer, Failure):
            return answer.cause
        if answer.status in (401, 407) or 300 <= answer.status < 400:
            outcome = self._dispatcher.interpret(answer)
            if isinstance(outcome, Failure):
                raise EngineError(f"{endpoint.url}: {outcome.cause}; {outcome.advice}")
        return None

    def _warn_once(self, topic: str, message: str, *args: object) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(message + " (said once)", *args)


def _control(
    request: Request, encoder: RequestEncoder, prompt: list[int] | None, stops: Sequence[int], number: int
) -> bytes:
    """Return the body of a request; different numbers yield different texts, and nothing else differs."""
    if prompt is not None:
        return encoder.encode(request, n=1, drawn=0, prompt=prompt[:number], stops=stops)
    messages = tuple(Message(role=message["role"], content=f"Say {number}.") for message in request.messages)
    return encoder.encode(msgspec.structs.replace(request, messages=messages), n=1, drawn=0)

"""The `server` engine: an OpenAI-compatible chat-completions endpoint, or several that serve the same model."""

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from evorun.errors import ConfigError, EngineError, above, at_least, one_of
from evorun.models.adapters import HELD, Adapter, ModelUnderAdapter, read_adapter
from evorun.models.base import Completion, LanguageModel, Reply, Request, rejected
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.server.adapters import AdapterLoader
from evorun.models.server.http import Answer, Failure, HttpTransport, checked_url, read_key, without_credentials
from evorun.models.server.retry import Endpoint, EndpointPool, backoff, parse_retry_after
from evorun.models.server.wire import (
    MESSAGES_ONLY,
    STRUCTURED_OUTPUTS,
    ChatResponse,
    RequestEncoder,
    decode_response,
    read_draw,
    server_message,
)

log = logging.getLogger(__name__)

# Timeouts, conflicts, "too early" and rate limits pass; so do all 5xx.
_RETRIED = frozenset({408, 409, 425, 429})
# Prompt longer than the context, content filter, invalid schema: other requests may still be served.
_ABOUT_THIS_REQUEST = frozenset({400, 413, 422})
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass
class ServerConfig(EngineConfig):
    """Schema of `conf/engine/server.yaml`."""

    name: str = "server"
    base_urls: list[str] = field(default_factory=lambda: ["http://localhost:8000/v1"])
    """URLs of servers of the same model, with the version part of the path (`/v1`); requests go to the one with the
    fewest outstanding. The default is that of `vllm serve`."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key. Null sends no key."""
    concurrency: int = 64
    """Requests in flight at once, over all servers together. `ours`."""
    timeout: float = 600.0
    """Seconds for one attempt, from sending to the last byte of the answer. `ours`."""
    connect_timeout: float = 10.0
    """Seconds to connect, and for the check of each server when the engine opens. `ours`."""
    max_retries: int = 8
    """Attempts after the first. With the backoff below, a server may be down for about a minute. `ours`."""
    backoff_base: float = 0.5
    """Seconds; the upper bound of the first wait, doubled with each retry. `ours`."""
    backoff_cap: float = 30.0
    """Seconds; the longest wait between attempts, Retry-After aside. `ours`."""
    max_retry_after: float = 300.0
    """Seconds; a server that asks for a longer wait than this (a used-up daily quota, say) is an error. `ours`."""
    structured_outputs: str = "json_schema"
    """Form of schemas in requests. json_schema: as `response_format` of that type, enforced (OpenAI, vLLM, SGLang).
    json_object: any JSON object is enforced, the schema is not sent (DeepSeek's API). none: left to the prompt."""
    max_tokens_field: str = "max_tokens"
    """max_tokens | max_completion_tokens (for OpenAI's reasoning models)."""
    send_seed: bool = True
    """Send the request's sampling seed; some vendors refuse the field."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Fields added to every request's body (`reasoning_effort: low`, `top_k: 20`). They override evorun's own; a null
    removes a field that the server refuses (`temperature: null`)."""

    def __post_init__(self) -> None:
        if not self.base_urls:
            raise ConfigError("engine.base_urls: expected at least one URL, got an empty list")
        self.base_urls = [checked_url(url) for url in self.base_urls]
        if self.api_key_env is not None and not _VARIABLE_NAME.fullmatch(self.api_key_env):
            raise ConfigError(
                "engine.api_key_env: expected the NAME of an environment variable (A-Z, 0-9 and _), got something "
                "else, not shown in case it is a key; put the key in a variable and name that here"
            )
        at_least("engine.concurrency", self.concurrency, 1)
        above("engine.timeout", self.timeout, 0)
        above("engine.connect_timeout", self.connect_timeout, 0)
        at_least("engine.max_retries", self.max_retries, 0)
        at_least("engine.backoff_base", self.backoff_base, 0)
        at_least("engine.backoff_cap", self.backoff_cap, 0)
        at_least("engine.max_retry_after", self.max_retry_after, 0)
        one_of("engine.structured_outputs", self.structured_outputs, STRUCTURED_OUTPUTS)
        one_of("engine.max_tokens_field", self.max_tokens_field, ("max_tokens", "max_completion_tokens"))

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Connect, check that at least one server answers, and load the model's adapter where it has one.

        Raises EngineError when no server answers within `connect_timeout`, the key's variable is not set, a server
        refuses the key, or one does not load the adapter.
        """
        adapter = None if model.adapter is None else await asyncio.to_thread(read_adapter, model.adapter)
        served = ServerModel(self, model, read_key(self.api_key_env), adapter)
        try:
            await served.check()
        except BaseException:
            await served.close()
            raise
        return served


class _Refusal(msgspec.Struct, frozen=True):
    """The server's refusal of one request."""

    reason: str


class ServerModel:
    """One model behind one or more chat-completions servers."""

    def __init__(
        self, config: ServerConfig, model: ModelConfig, key: str | None, adapter: Adapter | None = None
    ) -> None:
        """adapter: the one that the model is served under."""
        self.name = model.identity
        self._model = model
        self._adapter = adapter
        self._for_views: list[Adapter] = []
        """Adapters loaded for views, oldest first."""
        self._config = config
        self._http = HttpTransport(total=config.timeout, connect=config.connect_timeout, key=key)
        self._pool = EndpointPool(config.base_urls)
        self._loader = AdapterLoader(
            self._http,
            config.base_urls,
            model.id,
            max_retries=config.max_retries,
            backoff_base=config.backoff_base,
            backoff_cap=config.backoff_cap,
            connect_timeout=config.connect_timeout,
        )
        self._slots = asyncio.Semaphore(config.concurrency)
        self._encoder = self._encoder_for(model.id if adapter is None else adapter.served_name)
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
            log.warning("%s unreachable: %s; going on with the other servers", endpoint.url, cause)
            self._pool.avoid(endpoint)
        if self._adapter is not None:
            await self._loader.load(self._adapter)

    async def complete(self, request: Request) -> Reply:
        return await self._answer(request, self._encoder)

    async def under(self, folder: Path, name: str) -> LanguageModel:
        """Return the model under an adapter, whose folder the servers must be able to read."""
        if self._adapter is not None:
            raise EngineError(
                f"model '{self.name}' is served under an adapter, and no server puts another on top of it; merge the "
                "first into a model of its own, or set model.adapter=null"
            )
        adapter = await asyncio.to_thread(read_adapter, folder)
        await self._loader.load(adapter)
        self._for_views = [*(held for held in self._for_views if held.digest != adapter.digest), adapter]
        if len(self._for_views) > HELD:
            await self._loader.unload(self._for_views.pop(0))
        return ModelUnderAdapter(name, partial(self._answer, encoder=self._encoder_for(adapter.served_name)))

    async def _answer(self, request: Request, encoder: RequestEncoder) -> Reply:
        """Answer one request; where a server gives fewer completions than asked for, ask again with the next seeds."""
        if request.seen is not None:
            return rejected(request, MESSAGES_ONLY)
        started = time.perf_counter()
        completions: list[Completion] = []
        prompt_ids: tuple[int, ...] | None = None
        prompt_tokens = 0
        error: str | None = None
        async with self._slots:
            while (drawn := len(completions)) < request.sampling.n:
                # vLLM refuses n > 1 at temperature 0.
                n = request.sampling.n - drawn if request.sampling.temperature > 0 else 1
                response = await self._ask(encoder.encode(request, n=n, drawn=drawn))
                if isinstance(response, _Refusal):
                    self._warn_once("refused", "the server refuses a request: %s", response.reason)
                    seconds = time.perf_counter() - started
                    return rejected(request, response.reason, prompt_tokens=prompt_tokens, seconds=seconds)
                draw = read_draw(response, request, n)
                completions += draw.completions
                prompt_tokens += draw.prompt_tokens
                prompt_ids = draw.prompt_ids
                error = error or draw.error
                if draw.estimated:
                    self._warn_once("usage", "the server reports no token usage: tokens are estimated from text length")
        seconds = time.perf_counter() - started
        return Reply(
            completions=tuple(completions),
            prompt_tokens=prompt_tokens,
            seconds=seconds,
            error=self._http.safe(error) if error else None,
            prompt_ids=UNSET if prompt_ids is None else prompt_ids,
        )

    async def close(self) -> None:
        """Close all connections; calls under way end with EngineError."""
        await self._http.close()

    async def _ask(self, body: bytes) -> ChatResponse | _Refusal:
        """Send `body` until a server gives a usable answer. Raises EngineError when none does."""
        endpoint: Endpoint | None = None
        retry = 0
        while True:
            # A failing server does not hold up the request: the next attempt goes to another one, if there is one.
            endpoint = await self._next_endpoint(endpoint)
            endpoint.outstanding += 1
            endpoint.started += 1
            try:
                answer = await self._http.post(f"{endpoint.url}/chat/completions", body)
            finally:  # also when cancelled: the count would never go down again
                endpoint.outstanding -= 1
            outcome = self._classify(endpoint, answer) if isinstance(answer, Answer) else answer
            if not isinstance(outcome, Failure):
                self._pool.succeeded(endpoint)
                return outcome
            self._pool.failed(endpoint, outcome.retry_after)
            if retry == self._config.max_retries:
                raise EngineError(
                    f"{endpoint.url} unreachable: {retry + 1} attempts of a request failed, the last with: "
                    f"{outcome.cause}; check that the server works, or raise engine.max_retries or engine.timeout"
                )
            log.info("%s: attempt %d failed: %s", endpoint.url, retry + 1, outcome.cause)
            await asyncio.sleep(backoff(retry, self._config.backoff_base, self._config.backoff_cap))
            retry += 1

    async def _next_endpoint(self, last: Endpoint | None) -> Endpoint:
        """Pick a server, waiting while every one is held by its Retry-After.

        Raises EngineError when the engine has been closed or the wait is longer than `max_retry_after`.
        """
        while True:
            if self._http.closed:
                raise EngineError("the server engine was closed while a request was under way; open it again")
            endpoint = self._pool.pick(last)
            seconds = self._pool.hold_seconds(endpoint)
            if seconds <= 0:
                return endpoint
            if seconds > self._config.max_retry_after:
                raise EngineError(
                    f"{endpoint.url} asks to wait {seconds:.0f} s before the next request, more than "
                    f"engine.max_retry_after={self._config.max_retry_after:g}; is a quota used up?"
                )
            # Jitter, or all waiting requests would arrive in the same instant.
            await asyncio.sleep(seconds + backoff(0, self._config.backoff_base, self._config.backoff_cap))

    def _classify(self, endpoint: Endpoint, answer: Answer) -> ChatResponse | _Refusal | Failure:
        """Decode an HTTP answer. Raises EngineError for one that every other request would get too."""
        status = answer.status
        if 200 <= status < 300:
            try:
                return decode_response(answer.content)
            except ValueError as exc:
                return Failure(f"malformed answer, {exc}: {self._message(answer)}")
        if status in _ABOUT_THIS_REQUEST:
            return _Refusal(f"HTTP {status}: {self._message(answer)}")
        if status in _RETRIED or status >= 500:
            return Failure(f"HTTP {status}: {self._message(answer)}", parse_retry_after(answer.headers))
        raise self._unusable(endpoint, answer)

    def _unusable(self, endpoint: Endpoint, answer: Answer) -> EngineError:
        status = answer.status
        if 300 <= status < 400:
            target = self._http.safe(without_credentials(answer.headers.get("Location", "")))
            return EngineError(
                f"{endpoint.url}: HTTP {status} redirects to '{target}', which evorun does not follow because the API "
                "key would go there; if that is right, put it in engine.base_urls"
            )
        advice = "check engine.base_urls and engine.extra_body"
        if status in (401, 403):
            variable = self._config.api_key_env
            advice = (
                f"check the API key in the environment variable {variable}"
                if variable
                else "it seems to want an API key: name the environment variable that holds it in engine.api_key_env"
            )
        elif status == 404:
            advice = f"check model.id ('{self._model.id}') and engine.base_urls (a base URL mostly ends in /v1)"
        return EngineError(f"{endpoint.url}: HTTP {status}: {self._message(answer)}; {advice}")

    async def _probe(self, endpoint: Endpoint) -> str | None:
        """Return why a server cannot be reached, or None. Raises EngineError for a refused key or a redirect."""
        # Other answers pass, 403 and 404 too: some keys may not list models, and some servers have no /models.
        answer = await self._http.get(f"{endpoint.url}/models", self._config.connect_timeout)
        if isinstance(answer, Failure):
            return answer.cause
        if answer.status == 401 or 300 <= answer.status < 400:
            raise self._unusable(endpoint, answer)
        return None

    def _message(self, answer: Answer) -> str:
        return server_message(self._http.redact(answer.content))

    def _warn_once(self, topic: str, message: str, *args: object) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(message + " (said once)", *args)

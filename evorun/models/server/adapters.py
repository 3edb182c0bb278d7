"""Adapters on running servers, loaded with `POST /load_lora_adapter`: vLLM's under `/v1`, SGLang's beside it.

A server gets the adapter's path, and reads the files itself: vLLM 0.32 takes nothing else. SGLang takes tensors, at
`/load_lora_adapter_from_tensors`, but pickled, one copy per GPU, and in fields that differ between its versions
(0.5.8, 0.5.18); evorun does not support that. Requests to vLLM name an adapter alone, those to SGLang `MODEL:ADAPTER`;
otherwise SGLang answers without the adapter (sglang/srt/entrypoints/http_server.py, openai/serving_base.py).
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

import msgspec

from evorun.errors import EngineError
from evorun.models.adapters import Adapter, served_rank
from evorun.models.server.endpoint import Endpoint
from evorun.models.server.http import Answer, Failure, HttpTransport
from evorun.models.server.pool import EndpointPool
from evorun.models.server.retry import RetryPolicy

log = logging.getLogger(__name__)


NOT_FOUND = 404
SGLANG_ANSWERS = (200, 400)
"""Statuses of SGLang's answer to a load that succeeds, and to one that does not."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    """The answer to `GET /models`."""

    data: list[_Model]


class AdapterLoader:
    """Loads and unloads adapters on every server of one model."""

    def __init__(
        self, http: HttpTransport, pool: EndpointPool, model: str, policy: RetryPolicy, timeout: float, count: int
    ) -> None:
        """model: its id, for messages. timeout: seconds for listing a server's models. count: of adapters at once."""
        self._http = http
        self._pool = pool
        self._model = model
        self._policy = policy
        self._timeout = timeout
        self._count = count
        self._held: list[Adapter] = []
        """Newest first."""
        self._sglang: set[str] = set()
        """URLs of the servers that are SGLang's, as far as known."""

    async def load(self, adapter: Adapter) -> None:
        """Load an adapter under its `served_name` on the servers that work; the others load it when they answer again.

        Raises EngineError, with how to start a server, when a server refuses or none works.
        """
        self._held = [adapter, *(held for held in self._held if held.digest != adapter.digest)]
        endpoints = [endpoint for endpoint in self._pool.endpoints if not endpoint.cause]
        causes = await asyncio.gather(*(self._load_on(endpoint.url, adapter) for endpoint in endpoints))
        failed = [(endpoint, cause) for endpoint, cause in zip(endpoints, causes, strict=True) if cause is not None]
        if len(failed) == len(endpoints):
            listed = "; ".join(f"{endpoint.url}: {cause}" for endpoint, cause in failed)
            raise EngineError(f"no server loads adapter {adapter.folder}: {listed or 'none answers'}")
        for endpoint, cause in failed:
            self._pool.mark_down(endpoint, cause)
        kinds = {
            endpoint.url in self._sglang for endpoint, cause in zip(endpoints, causes, strict=True) if cause is None
        }
        if len(kinds) > 1:
            raise EngineError("engine.base_urls: expected servers of one kind for adapters, got vLLM's and SGLang's")

    def requested_name(self, adapter: Adapter) -> str:
        """Return the name under which requests ask for an adapter that is loaded.

        Raises EngineError where the model's id does not allow that.
        """
        if not self._sglang:
            return adapter.served_name
        if ":" in self._model:
            raise EngineError(
                f"model.id: '{self._model}' has a colon, after which SGLang reads the adapter's name; serve the model "
                "with --served-model-name NAME, and set model.id=NAME"
            )
        return f"{self._model}:{adapter.served_name}"

    async def unload(self, adapter: Adapter) -> None:
        """Unload an adapter."""
        self._held = [held for held in self._held if held.digest != adapter.digest]
        fields = {"lora_name": adapter.served_name}
        endpoints = [endpoint for endpoint in self._pool.endpoints if not endpoint.cause]
        answers = await asyncio.gather(
            *(self._post(endpoint.url, "unload_lora_adapter", fields) for endpoint in endpoints)
        )
        for endpoint, answer in zip(endpoints, answers, strict=True):
            if isinstance(answer, Failure) or answer.status >= 300:  # harmless: the server keeps a superfluous name
                log.info("%s does not unload adapter %s", endpoint.url, adapter.served_name)

    async def restore(self, endpoint: Endpoint) -> None:
        """Load all adapters on a server that may have restarted, the current step's first."""
        for adapter in self._held:
            try:
                await self._load_on(endpoint.url, adapter)
            except EngineError as refused:  # the probe that follows shows the consequence
                log.warning("%s", refused)

    async def _load_on(self, url: str, adapter: Adapter) -> str | None:
        """Return why a server is unreachable; None when it has the adapter. Raises EngineError when it refuses."""
        # Without `load_inplace`, for which vLLM 0.32 reads the files again at every step of every request.
        fields: dict[str, object] = {"lora_name": adapter.served_name, "lora_path": str(adapter.folder)}
        stacks = {"is_3d_lora_weight": True} if adapter.stacks_experts and url not in self._sglang else {}
        answer = await self._post(url, "load_lora_adapter", {**fields, **stacks})
        if isinstance(answer, Answer) and answer.status == NOT_FOUND and url not in self._sglang:
            beside = await self._http.post(f"{_beside(url)}/load_lora_adapter", msgspec.json.encode(fields))
            if isinstance(beside, Answer) and beside.status in SGLANG_ANSWERS:
                self._sglang.add(url)
                answer = beside
        if isinstance(answer, Failure):
            return answer.cause
        # A server refuses a name that it already has: no error, since the name holds the weights' digest.
        if answer.status >= 300 and not await self._has(url, adapter):
            raise EngineError(
                f"{url} does not load adapter {adapter.folder}: HTTP {answer.status}: {self._http.message(answer)}; "
                f"the server must see this folder and run as `{self._start(url, adapter)}`"
            )
        return None

    def _start(self, url: str, adapter: Adapter) -> str:
        """Return the command that starts a server with such adapters."""
        rank = served_rank(adapter.rank)
        if url in self._sglang:
            command = f"python -m sglang.launch_server --model-path {self._model} --enable-lora"
            return f"{command} --max-lora-rank {rank} --lora-target-modules all"
        command = f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {self._model} --enable-lora"
        experts = " --enable-mixed-moe-lora-format" if adapter.stacks_experts else ""
        return f"{command} --max-loras {self._count} --max-lora-rank {rank}{experts}"

    async def _post(self, url: str, action: str, fields: Mapping[str, object]) -> Answer | Failure:
        """POST to a server; repeat where it is unreachable."""
        body, retry = msgspec.json.encode(fields), 0
        base = _beside(url) if url in self._sglang else url
        while True:
            answer = await self._http.post(f"{base}/{action}", body)
            if isinstance(answer, Answer) or retry == self._policy.max_retries:
                return answer
            await asyncio.sleep(self._policy.backoff(retry))
            retry += 1

    async def _has(self, url: str, adapter: Adapter) -> bool:
        """Return whether a server lists the adapter among its models."""
        answer = await self._http.get(f"{url}/models", self._timeout)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if isinstance(answer, Answer):
                return adapter.served_name in {m.id for m in msgspec.json.decode(answer.content, type=_Models).data}
        return False


def _beside(url: str) -> str:
    """Return the address of a server without the version part of the path."""
    return url.removesuffix("/v1")

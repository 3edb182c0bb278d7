"""Adapters on servers: vLLM's way of loading one while it serves (`POST /load_lora_adapter`)."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from evorun.errors import EngineError
from evorun.models.adapters import HELD, Adapter
from evorun.models.server.http import Answer, Failure, HttpTransport
from evorun.models.server.retry import backoff
from evorun.models.server.wire import server_message

log = logging.getLogger(__name__)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    """The answer to `GET /models`."""

    data: list[_Model]


@dataclass(frozen=True)
class AdapterLoader:
    """Has every server of one model load adapters, and forget them."""

    http: HttpTransport
    urls: Sequence[str]
    model: str
    """Its id, for messages."""
    max_retries: int
    backoff_base: float
    """Seconds, like the others."""
    backoff_cap: float
    connect_timeout: float

    async def load(self, adapter: Adapter) -> None:
        """Load an adapter under its `served_name`. Raises EngineError, saying how to start a server, when one fails."""
        # Not in place, for which vLLM 0.32 reads the files again at every step of every request.
        fields = {"lora_name": adapter.served_name, "lora_path": str(adapter.folder)}
        for url, answer in await self._post("load_lora_adapter", fields):
            cause = self._cause(answer)
            # Servers refuse what they have; the name says what the adapter computes, so it is the right one.
            if cause and not await self._has(url, adapter):
                raise EngineError(
                    f"{url} does not load adapter {adapter.folder}: {cause}; the server must see this folder and run "
                    f"as `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {self.model} --enable-lora --max-loras "
                    f"{HELD} --max-lora-rank {adapter.served_rank}`"
                )

    async def unload(self, adapter: Adapter) -> None:
        """Forget an adapter; a server that does not only keeps a name too many."""
        for url, answer in await self._post("unload_lora_adapter", {"lora_name": adapter.served_name}):
            if cause := self._cause(answer):
                log.info("%s does not unload adapter %s: %s", url, adapter.served_name, cause)

    async def _post(self, action: str, fields: Mapping[str, object]) -> list[tuple[str, Answer | Failure]]:
        """Return each server's URL and its answer."""
        body = msgspec.json.encode(fields)
        answers = await asyncio.gather(*(self._post_until_answered(f"{url}/{action}", body) for url in self.urls))
        return list(zip(self.urls, answers, strict=True))

    async def _post_until_answered(self, url: str, body: bytes) -> Answer | Failure:
        for retry in range(self.max_retries):
            answer = await self.http.post(url, body)
            if isinstance(answer, Answer):
                return answer
            await asyncio.sleep(backoff(retry, self.backoff_base, self.backoff_cap))
        return await self.http.post(url, body)

    async def _has(self, url: str, adapter: Adapter) -> bool:
        """Tell whether a server lists the adapter among its models."""
        answer = await self.http.get(f"{url}/models", self.connect_timeout)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            if isinstance(answer, Answer):
                return adapter.served_name in {m.id for m in msgspec.json.decode(answer.content, type=_Models).data}
        return False

    def _cause(self, answer: Answer | Failure) -> str | None:
        """Return why a server did not do as asked; None when it did."""
        if isinstance(answer, Failure):
            return answer.cause
        if 200 <= answer.status < 300:
            return None
        return f"HTTP {answer.status}: {server_message(self.http.redact(answer.content))}"

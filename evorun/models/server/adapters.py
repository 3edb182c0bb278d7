"""Adapters on servers, loaded while these serve with vLLM's `POST /load_lora_adapter`."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from evorun.errors import EngineError
from evorun.models.adapters import HELD, Adapter, served_rank
from evorun.models.server.http import Answer, Failure, HttpTransport
from evorun.models.server.retry import Patience

log = logging.getLogger(__name__)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    """The answer to `GET /models`."""

    data: list[_Model]


@dataclass(frozen=True)
class AdapterLoader:
    """Loads and unloads adapters on every server of one model."""

    http: HttpTransport
    urls: Sequence[str]
    model: str
    """Id of the model, for messages."""
    patience: Patience
    connect_timeout: float
    """Seconds."""

    async def load(self, adapter: Adapter) -> None:
        """Load an adapter under its `served_name`. Raises EngineError, saying how to start a server, when one fails."""
        # Without `load_inplace`, for which vLLM 0.32 reads the files again at every step of every request.
        fields = {"lora_name": adapter.served_name, "lora_path": str(adapter.folder)}
        for url, cause in await self._post("load_lora_adapter", fields):
            # A server refuses a name that it has already. The name carries the weights' digest, so that is no error.
            if cause and not await self._has(url, adapter):
                raise EngineError(
                    f"{url} does not load adapter {adapter.folder}: {cause}; the server must see this folder and run "
                    f"as `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {self.model} --enable-lora --max-loras "
                    f"{HELD} --max-lora-rank {served_rank(adapter.rank)}`"
                )

    async def unload(self, adapter: Adapter) -> None:
        """Unload an adapter."""
        for url, cause in await self._post("unload_lora_adapter", {"lora_name": adapter.served_name}):
            if cause:  # harmless: the server keeps one name too many
                log.info("%s does not unload adapter %s: %s", url, adapter.served_name, cause)

    async def _post(self, action: str, fields: Mapping[str, object]) -> list[tuple[str, str | None]]:
        """Return each server's URL, and why it did not do as asked (None when it did)."""
        body = msgspec.json.encode(fields)
        causes = await asyncio.gather(*(self._post_to(f"{url}/{action}", body) for url in self.urls))
        return list(zip(self.urls, causes, strict=True))

    async def _post_to(self, url: str, body: bytes) -> str | None:
        """Return why one server did not do as asked; None when it did."""
        retry = 0
        while isinstance(answer := await self.http.post(url, body), Failure):
            if retry == self.patience.max_retries:
                return answer.cause
            await asyncio.sleep(self.patience.backoff(retry))
            retry += 1
        if 200 <= answer.status < 300:
            return None
        return f"HTTP {answer.status}: {self.http.message(answer)}"

    async def _has(self, url: str, adapter: Adapter) -> bool:
        """Tell whether a server lists the adapter among its models."""
        answer = await self.http.get(f"{url}/models", self.connect_timeout)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if isinstance(answer, Answer):
                return adapter.served_name in {m.id for m in msgspec.json.decode(answer.content, type=_Models).data}
        return False

"""The `tinker` engine: a model on a server that speaks Tinker's API, and the adapters that are trained there."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError, EngineError, EvorunError
from evorun.fields import PositiveFloat
from evorun.models.adapters import ADDRESS, ModelUnderAdapter
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.tinker.sampling import Sampler
from evorun.models.tinker.service import close, connect, create, explain, require_service
from evorun.models.urls import checked_url


class Snapshot(msgspec.Struct, frozen=True):
    """Weights on the server from which it samples: the contents of an adapter's file `ADDRESS`."""

    sampler: str
    """Their address (`tinker://...`)."""


@dataclass
class TinkerConfig(EngineConfig):
    """Schema of `conf/engine/tinker.yaml`."""

    on_tinker = True

    name: str = "tinker"
    base_url: str | None = None
    """Address of the server; null: that of the trainer (`training.base_url`), else TINKER_BASE_URL, else Thinking
    Machines' own."""
    timeout: PositiveFloat | None = 3600.0
    """Seconds for a request, including waits in the server's queue; null: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_url is not None:
            self.base_url = checked_url("engine.base_url", self.base_url)

    @property
    def trainer_url(self) -> str | None:
        return self.base_url

    @property
    def billed(self) -> bool:
        return True

    @property
    def lacks_digits(self) -> str | None:
        return "Tinker's API, which takes no schema"

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        return True

    def for_confidence(self, *, ends_early: bool) -> "TinkerConfig":
        raise ConfigError(
            "engine=tinker: gives no log-probabilities of the likeliest tokens while it samples, which confidences "
            "need; use engine=vllm, engine=transformers or engine=server"
        )

    def beside_trainer(self, base_url: str | None) -> "TinkerConfig":
        return replace(self, base_url=self.base_url or base_url)

    def require(self, model: ModelConfig) -> None:
        require_service()

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Connect to the server. Raises EngineError or ConfigError when it does not answer or lacks the model."""
        self.require(model)
        weights = {"base_model": model.id} if model.adapter is None else _read_weights(model.adapter)
        sampler = await asyncio.to_thread(Sampler, model, self.timeout)
        service: Any = None
        try:
            service = await connect(self.base_url, model.id)
            base = await create(service.create_sampling_client, **weights)
        except BaseException as error:
            sampler.close()
            if service is not None:
                await close(service, "errored")
            if isinstance(error, EvorunError) or not isinstance(error, Exception):
                raise
            raise EngineError(explain(f"cannot open model '{model.id}'", error)) from error
        return TinkerModel(model, service, base, sampler)


class TinkerModel:
    """A model behind Tinker's API. Belongs to one event loop."""

    def __init__(self, model: ModelConfig, service: Any, base: Any, sampler: Sampler) -> None:
        """base: the SamplingClient of the model, under `model.adapter` if it has one."""
        self.name = model.identity
        self._service = service
        self._base = base
        self._sampler = sampler
        self._closed = False

    async def complete(self, request: Request) -> Reply:
        return await self._answer(request, self._base)

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return a view of the model with the weights of a snapshot on the server, whose address `folder` holds."""
        weights = _read_weights(folder)
        try:
            client = await create(self._service.create_sampling_client, **weights)
        except Exception as error:
            raise EngineError(explain(f"cannot sample from {weights['model_path']}", error)) from error
        return ModelUnderAdapter(name, partial(self._answer, client=client))

    async def _answer(self, request: Request, client: Any) -> Reply:
        if self._closed:
            raise EngineError(f"model '{self.name}': the tinker engine is closed")
        return await self._sampler.answer(client, request)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._sampler.close()
            await close(self._service)


def _read_weights(folder: str | Path) -> dict[str, str]:
    """Return the argument of `create_sampling_client` for the adapter of a folder.

    Raises EngineError for one without an address on the server.
    """
    try:
        snapshot = msgspec.json.decode((Path(folder).expanduser() / ADDRESS).read_bytes(), type=Snapshot)
    except (OSError, msgspec.DecodeError) as error:
        raise EngineError(
            f"adapter {folder}: expected {ADDRESS} with the address of weights on Tinker's server ({error}); the "
            "server takes no adapters from elsewhere; use engine=vllm for one in a folder"
        ) from error
    return {"model_path": snapshot.sampler}

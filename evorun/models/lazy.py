"""A model whose engine starts on the first call that needs it: a run answered by its journal loads nothing.

An engine whose process dies is started again, once, and asked again what it has not answered.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from evorun.errors import EngineDied, EngineError, EvorunError, WeightsLost
from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import (
    LanguageModel,
    ReceivesWeights,
    Reply,
    Request,
    Sleeps,
    TakesAdapters,
    TakesWeights,
    Waking,
    Wasted,
    WeightReceiver,
)
from evorun.models.busy import BusyTime, at_work
from evorun.models.config import name_engine_key

log = logging.getLogger(__name__)

DIED = "engine_died"
"""Kind of attempts that ended with their engine's process."""


class _Given(NamedTuple):
    """An adapter, or whole weights, that training gave an engine."""

    folder: Path
    view: LanguageModel
    whole: bool


class LazyModel:
    """A model that opens its engine once, on first use. If that fails, every later call raises the same error."""

    def __init__(self, name: str, open_engine: Callable[[], Awaitable[LanguageModel]], key: str = "engine") -> None:
        """key: the configuration key of the engine, which its errors name."""
        self.name = name
        self.gpus: Sequence[BusyTime] = ()
        """The times of the GPUs that the engine uses."""
        self._open_engine = open_engine
        self._key = key
        self._engine: LanguageModel | None = None
        self._failure: Exception | None = None
        self._opening = asyncio.Lock()
        self._restarted = False
        self._given: dict[str, _Given] = {}
        """Adapters and weights that the engine was given, by name, the latest last."""

    @property
    def opened(self) -> LanguageModel | None:
        """The engine, or None before it is open."""
        return self._engine

    async def complete(self, request: Request) -> Reply:
        """Answer a request. Raises EngineError when the engine cannot be opened."""
        engine = self._engine or await self._opened()
        try:
            try:
                return await self._answer(engine, request)
            except EngineDied as death:
                return count_death(await self._answer(await self._restart(engine, death), request))
        except EngineError as error:
            name_engine_key(error, self._key)
            raise

    async def _answer(self, engine: LanguageModel, request: Request) -> Reply:
        if not self.gpus:
            return await engine.complete(request)
        with at_work(self.gpus):
            return await engine.complete(request)

    async def _answer_under(self, view: LanguageModel, request: Request) -> Reply:
        """Answer a request under an adapter or with other weights. view: of the engine that was given them."""
        engine = self._engine or await self._opened()
        try:
            return await self._answer(self._present(view), request)
        except EngineDied as death:
            await self._restart(engine, death)
            return count_death(await self._answer(self._present(view), request))

    def _present(self, view: LanguageModel) -> LanguageModel:
        """Return the view by the same name of the engine that runs now."""
        return self._given[view.name].view if view.name in self._given else view

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return the model under an adapter. Raises EngineError if the engine does not open or takes no adapters."""
        engine = self._engine or await self._opened()
        if not isinstance(engine, TakesAdapters):
            raise EngineError(
                f"model '{self.name}': its engine takes no adapters while it runs; use engine=vllm or engine=server"
            )
        return self._hold(folder, await engine.with_adapter(folder, name), whole=False)

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        """Return the model with other weights. Raises EngineError if the engine cannot replace them or open."""
        engine = self._engine or await self._opened()
        if not isinstance(engine, TakesWeights):
            raise EngineError(
                f"model '{self.name}': its engine cannot replace its weights while it runs; use engine=vllm"
            )
        return self._hold(folder, await engine.with_weights(folder, name), whole=True)

    async def receive_weights(self, name: str, send: Callable[[WeightReceiver], Awaitable[None]]) -> LanguageModel:
        """Return the model with weights from a trainer's memory. Raises EngineError if the engine takes none."""
        engine = self._engine or await self._opened()
        if not isinstance(engine, ReceivesWeights):
            raise EngineError(f"model '{self.name}': its engine receives no weights from a trainer; use engine=vllm")
        view = await engine.receive_weights(name, send)
        return ModelUnderAdapter(name, partial(self._answer_with_received, engine, view))

    async def _answer_with_received(self, engine: LanguageModel, view: LanguageModel, request: Request) -> Reply:
        """Answer with weights that a trainer sent. Raises WeightsLost where another engine has taken its place."""
        lost = WeightsLost(f"model '{self.name}': its engine has started again, without the weights of the trainer")
        if self._engine is not engine:
            raise lost
        try:
            return await self._answer(view, request)
        except EngineDied as death:
            await self._restart(engine, death)
            raise lost from death

    def _hold(self, folder: Path, view: LanguageModel, *, whole: bool) -> LanguageModel:
        # Whoever has no use for weights any more removes their folder.
        self._given = {name: given for name, given in self._given.items() if given.folder.exists()}
        self._given[view.name] = _Given(folder, view, whole)
        return ModelUnderAdapter(view.name, partial(self._answer_under, view))

    @contextlib.asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """Let the engine sleep while the block runs; an engine that is not open stays so until the block ends."""
        async with self._opening, contextlib.AsyncExitStack() as stack:
            if isinstance(self._engine, Sleeps):
                await stack.enter_async_context(self._engine.asleep())
            yield

    def take_wakings(self) -> Sequence[Waking]:
        """Return the engine's wakings since the last call; none if it is not open or cannot sleep."""
        return self._engine.take_wakings() if isinstance(self._engine, Sleeps) else ()

    async def _opened(self) -> LanguageModel:
        # Calls made while the engine starts wait for it instead of starting a second one.
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            return self._engine or await self._open()

    async def _open(self) -> LanguageModel:
        try:
            engine = await self._open_engine()
            for name, given in list(self._given.items()):
                if not given.folder.exists():
                    continue
                if given.whole and isinstance(engine, TakesWeights):
                    self._given[name] = given._replace(view=await engine.with_weights(given.folder, name))
                elif isinstance(engine, TakesAdapters):
                    self._given[name] = given._replace(view=await engine.with_adapter(given.folder, name))
        except Exception as error:
            if isinstance(error, EvorunError):
                name_engine_key(error, self._key)
            self._failure = error
            raise
        self._engine = engine
        return engine

    async def _restart(self, dead: LanguageModel, death: EngineDied) -> LanguageModel:
        """Return the engine that replaces one whose process died. Raises the error of a second death."""
        name_engine_key(death, self._key)
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._engine is not dead and self._engine is not None:
                return self._engine  # another call was faster
            if self._restarted:
                raise death
            self._restarted = True
            log.warning("%s; starting the engine again, once", death)
            self._engine = None
            await dead.close()
            return await self._open()

    async def close(self) -> None:
        """Close the engine if it was opened; idempotent."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None


def count_death(reply: Reply) -> Reply:
    """Return a reply that counts an attempt on a dead engine, which may have processed the prompt."""
    died = {DIED: Wasted(1, reply.prompt_tokens)}
    return msgspec.structs.replace(reply, wasted=died if reply.wasted is UNSET else {**reply.wasted, **died})

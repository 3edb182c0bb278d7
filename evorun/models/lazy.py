"""A model whose engine starts on the first call that needs it: a run answered by its journal loads nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from evorun.errors import EngineError, EvorunError
from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import LanguageModel, Reply, Request, Sleeps, TakesAdapters, TakesWeights
from evorun.models.busy import BusyTime, at_work
from evorun.models.config import name_engine_key


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

    @property
    def opened(self) -> LanguageModel | None:
        """The engine, or None before it is open."""
        return self._engine

    async def complete(self, request: Request) -> Reply:
        """Answer a request. Raises EngineError when the engine cannot be opened."""
        engine = self._engine or await self._opened()
        try:
            return await self._answer(engine, request)
        except EngineError as error:
            name_engine_key(error, self._key)
            raise

    async def _answer(self, engine: LanguageModel, request: Request) -> Reply:
        if not self.gpus:
            return await engine.complete(request)
        with at_work(self.gpus):
            return await engine.complete(request)

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return the model under an adapter. Raises EngineError if the engine does not open or takes no adapters."""
        engine = self._engine or await self._opened()
        if not isinstance(engine, TakesAdapters):
            raise EngineError(
                f"model '{self.name}': its engine takes no adapters while it runs; use engine=vllm or engine=server"
            )
        return self._measured(await engine.with_adapter(folder, name))

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        """Return the model with other weights. Raises EngineError if the engine cannot replace them or open."""
        engine = self._engine or await self._opened()
        if not isinstance(engine, TakesWeights):
            raise EngineError(
                f"model '{self.name}': its engine cannot replace its weights while it runs; use engine=transformers"
            )
        return self._measured(await engine.with_weights(folder, name))

    def _measured(self, view: LanguageModel) -> LanguageModel:
        return ModelUnderAdapter(view.name, partial(self._answer, view)) if self.gpus else view

    @contextlib.asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """Let the engine sleep while the block runs; an engine that is not open stays so until the block ends."""
        async with self._opening, contextlib.AsyncExitStack() as stack:
            if isinstance(self._engine, Sleeps):
                await stack.enter_async_context(self._engine.asleep())
            yield

    async def _opened(self) -> LanguageModel:
        # Calls made while the engine starts wait for it instead of starting a second one.
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._engine is None:
                try:
                    self._engine = await self._open_engine()
                except Exception as error:
                    if isinstance(error, EvorunError):
                        name_engine_key(error, self._key)
                    self._failure = error
                    raise
            return self._engine

    async def close(self) -> None:
        """Close the engine if it was opened; idempotent."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

"""A model whose engine starts at the first call that really needs it: a run answered by its journal loads nothing."""

import asyncio
from collections.abc import Awaitable, Callable

from evorun.models.base import LanguageModel, Reply, Request


class LazyModel:
    """Opens its engine on first use."""

    def __init__(self, name: str, open_engine: Callable[[], Awaitable[LanguageModel]]) -> None:
        self.name = name
        self._open_engine = open_engine
        self._engine: LanguageModel | None = None
        self._opening = asyncio.Lock()

    async def complete(self, request: Request) -> Reply:
        """Answer one request. Raises EngineError when the engine cannot be opened."""
        if self._engine is None:
            async with self._opening:
                if self._engine is None:
                    self._engine = await self._open_engine()
        return await self._engine.complete(request)

    async def close(self) -> None:
        """Close the engine if it was opened; idempotent."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

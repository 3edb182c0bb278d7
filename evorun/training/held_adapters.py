"""An engine beside the trainer that receives the adapter of each update."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from evorun.models.base import LanguageModel, Reply, Request, TakesAdapters
from evorun.runs.stopwatch import Stopwatch


class HeldAdapters:
    """Answers requests with the weights of an update, whose adapter the engine holds beside those before it."""

    def __init__(
        self,
        engine: TakesAdapters,
        model: str,
        export: Callable[[int], Awaitable[Path]],
        has: Callable[[int], bool],
        stopwatch: Stopwatch,
        former: int,
    ) -> None:
        """engine: answers with the untrained weights. export: writes an update's adapter into a folder.

        has: tells whether the trainer has an update's weights. former: adapters to hold beside the newest.
        """
        self._engine = engine
        self._model = model
        self._export = export
        self._has = has
        self._stopwatch = stopwatch
        self._former = former
        self._views: dict[int, LanguageModel] = {}
        """Views under the adapters of the latest updates; the engine keeps no more (`held_adapters`)."""
        self._folders: dict[int, Path] = {}
        """Folders of these adapters; a restarted server loads them again."""
        self._changing = asyncio.Lock()

    async def generate(self, version: int, request: Request) -> Reply:
        """Answer a request with the weights of an update."""
        view = await self.load(version)
        return await view.complete(request)

    async def load(self, version: int) -> LanguageModel:
        """Return the engine under an update's adapter; load the adapter if the engine lacks it."""
        async with self._changing:
            # Older versions first, even if nobody has asked for them: later, they would displace newer ones.
            for older in range(max(0, version - self._former), version):
                if version not in self._views and older not in self._views and self._has(older):
                    await self._load(older)
            if version not in self._views:
                await self._load(version)
            return self._views[version]

    async def _load(self, version: int) -> None:
        with self._stopwatch.during("weight_sync"):
            self._folders[version] = await self._export(version)
            view = await self._engine.with_adapter(self._folders[version], f"{self._model}@{version}")
        self._views = dict([*self._views.items(), (version, view)][-(1 + self._former) :])
        for former in self._folders.keys() - self._views.keys():
            shutil.rmtree(self._folders.pop(former), ignore_errors=True)

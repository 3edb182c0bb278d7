"""An engine beside the trainer whose weights are replaced by those of each update, where all weights are trained."""

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from evorun.errors import EngineDied, WeightsLost
from evorun.models.base import LanguageModel, Reply, Request, TakesWeights
from evorun.models.lazy import count_death
from evorun.runs.stopwatch import Stopwatch

log = logging.getLogger("evorun")


class WeightFolders:
    """Gives an engine the weights of an update through a folder."""

    def __init__(
        self, engine: TakesWeights, model: str, export: Callable[[int], Awaitable[Path]], folders: int
    ) -> None:
        """export: writes an update's weights into a folder. folders: number of them to keep.

        They are those of the latest updates, to be loaded again while the trainer is busy.
        """
        self._engine = engine
        self._model = model
        self._export = export
        self._kept = folders
        self._folders: dict[int, Path] = {}

    async def load(self, version: int) -> LanguageModel:
        """Return the engine's view with the weights of an update."""
        if version not in self._folders:
            self._folders[version] = await self._export(version)
        view = await self._engine.with_weights(self._folders[version], f"{self._model}@{version}")
        excess = max(0, len(self._folders) - self._kept)
        for former in sorted(self._folders.keys() - {version})[:excess]:
            shutil.rmtree(self._folders.pop(former), ignore_errors=True)
        return view


class ReplacedWeights:
    """Answers requests with the weights of an update.

    The engine holds the weights of one update at a time. Requests for another one wait until the requests in progress
    are answered. The oldest update comes first, since the trainer's next update waits for its requests.
    """

    def __init__(
        self,
        engine: TakesWeights,
        load: Callable[[int], Awaitable[LanguageModel]],
        stopwatch: Stopwatch,
    ) -> None:
        """engine: holds the untrained weights. load: gives it those of an update, and returns its view with them."""
        self._engine = engine
        self._load = load
        self._stopwatch = stopwatch
        self._view: LanguageModel = engine
        self._held: int | None = 0
        """The update whose weights the engine holds; None: it has lost them, or a part of them."""
        self._in_progress = 0
        self._wanted: Counter[int] = Counter()
        """Number of waiting requests by update."""
        self._changed = asyncio.Condition()

    async def generate(self, version: int, request: Request) -> Reply:
        """Answer a request with the weights of an update."""
        died = False
        while True:
            try:
                async with self._holding(version) as view:
                    reply = await view.complete(request)
                return count_death(reply) if died else reply
            except WeightsLost as lost:
                died = died or isinstance(lost.__cause__, EngineDied)
                log.info("%s; sending them again", lost)

    async def load(self, version: int) -> None:
        """Give the engine the weights of an update, after the requests in progress."""
        async with self._holding(version):
            pass

    async def close(self) -> None:
        """Close the engine; idempotent."""
        await self._engine.close()

    @asynccontextmanager
    async def _holding(self, version: int) -> AsyncIterator[LanguageModel]:
        """Yield the engine with an update's weights, which it keeps until the block ends."""
        async with self._changed:
            self._wanted[version] += 1
            try:
                await self._changed.wait_for(lambda: self._may_begin(version))
                if version != self._held:
                    await self._replace(version)
                self._in_progress += 1
            finally:
                self._wanted[version] -= 1
        try:
            yield self._view
        except WeightsLost:
            self._held = None
            raise
        finally:
            async with self._changed:
                self._in_progress -= 1
                self._changed.notify_all()

    def _may_begin(self, version: int) -> bool:
        oldest = min((wanted for wanted, count in self._wanted.items() if count), default=version)
        return version == self._held or (not self._in_progress and version == oldest)

    async def _replace(self, version: int) -> None:
        with self._stopwatch.during("weight_sync"):
            self._held = None  # until all of them are there
            self._view = await self._load(version)
            self._held = version

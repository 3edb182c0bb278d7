"""The engines on the trainer's GPU, which sleep while it needs their memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from evorun.models.base import Sleeps
from evorun.runs.stopwatch import Stopwatch


class SleepingEngines:
    """Puts engines to sleep together. Belongs to one event loop."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        """stopwatch: receives the figures of their wakings."""
        self._stopwatch = stopwatch
        self._engines: list[Sleeps] = []
        self._blocks = 0
        """The number of blocks in which they sleep."""
        self._sleep = AsyncExitStack()
        """Ends their sleep."""
        self._falling_asleep = asyncio.Lock()

    def add(self, engine: Sleeps) -> None:
        """Let an engine sleep with the others."""
        self._engines.append(engine)

    @asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """Let the engines sleep while the block runs; several blocks may run at once."""
        async with self._falling_asleep:
            if not self._blocks:
                async with AsyncExitStack() as asleep:
                    for engine in self._engines:
                        for waking in engine.take_wakings():
                            self._stopwatch.add(sleep_seconds=waking.seconds, probes=1, probe_reloads=waking.reloads)
                            self._stopwatch.note_largest("probe_distance", waking.distance)
                        await asleep.enter_async_context(engine.asleep())
                    self._sleep = asleep.pop_all()
            self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1
            if not self._blocks:
                await self._sleep.aclose()

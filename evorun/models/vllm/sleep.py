"""vLLM's sleep mode: requests and a trainer on the same GPU take turns with its memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any


class SleepMode:
    """Puts an engine to sleep while another process needs its memory. Belongs to one event loop."""

    def __init__(self, engine: Any) -> None:
        """engine: an `AsyncLLM` that was started with `enable_sleep_mode`."""
        self._engine = engine
        self._sleeps = False
        self._wanted = False
        """True while a caller of `asleep` uses the engine's memory or waits for it."""
        self._requests = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Keep the engine awake while the block runs; many blocks may run at once."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._wanted)
            if self._sleeps:  # wakes only on a request: consecutive updates without requests need no wake-up
                await self._engine.wake_up()
                self._sleeps = False
            self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            async with self._changed:
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """Let the engine sleep while the block runs: requests in progress finish first, later ones wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._wanted)
            self._wanted = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._requests == 0)
                if not self._sleeps:
                    await self._engine.sleep(level=1)  # moves weights to main memory, drops cached keys and values
                    self._sleeps = True
            yield
        finally:
            self._wanted = False
            async with self._changed:
                self._changed.notify_all()

"""An event loop whose clock is made up, for tests of waiting that take no time and depend on no machine's speed."""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Instead of waiting for the next timer, it sets its clock to it. Nothing in it may wait for sockets or threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            timers[0]._scheduled = False
            heapq.heappop(timers)
        if timers and not self._ready:  # type: ignore[attr-defined]
            self._now = max(self._now, timers[0]._when)
        super()._run_once()  # type: ignore[misc]


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)

"""The bound on requests in flight."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """Slots for requests in flight; of the calls that wait for one, the call that came first gets it.

    A call that gives its slot back between two attempts is thus not behind all later calls, as in a plain semaphore.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, number: int) -> AsyncIterator[None]:
        """Hold a slot. number: of the call, in the order of their arrival; each waits once at a time."""
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (number, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was this call's turn already
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a slot to the first call that waits, or back."""
        while self._waiting:
            _, turn = heapq.heappop(self._waiting)
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1

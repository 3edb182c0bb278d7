"""Measures how long GPUs have work, by what evorun asks of the engines and the trainer on them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence


class BusyTime:
    """The time in which at least one of several overlapping blocks ran."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open = 0
        self._since = 0.0
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self._before + (self._clock() - self._since if self._open else 0.0)

    def begin(self) -> None:
        """Open a block."""
        if not self._open:
            self._since = self._clock()
        self._open += 1

    def end(self) -> None:
        """Close a block."""
        self._open -= 1
        if not self._open:
            self._before += self._clock() - self._since


@contextlib.contextmanager
def at_work(gpus: Sequence[BusyTime]) -> Iterator[None]:
    """Count the time of the block for each of the GPUs."""
    for gpu in gpus:
        gpu.begin()
    try:
        yield
    finally:
        for gpu in gpus:
            gpu.end()

"""An estimate of the time that a run still takes, from the shares of its work that were done so far."""

from collections import deque

_TOGETHER = 0.005
"""Share of the time so far within which progress counts as one event: problems in step move on together (ours)."""
_FADING = 0.9
"""Share of the longest wait between two events that is still expected after a shorter one (ours)."""


class TimeLeft:
    """Time left at the pace of the latest half of the time so far.

    The pace of the latest half follows a run that slows down, as later generations have longer prompts, and is steadier
    than the last event's.
    """

    def __init__(self, seconds: float) -> None:
        self.restart(seconds, 0.0)

    def restart(self, seconds: float, share: float) -> None:
        """Begin here: what came before (an engine's start, a replay of the journal) says nothing about the pace."""
        self._start = seconds
        self._events = deque([(seconds, share)])
        self._wait = 0.0
        self._left: tuple[float, float] | None = None
        """The moment of the latest event and the seconds left then; one value, as another thread reads it."""

    def add(self, seconds: float, share: float) -> None:
        """Note the share of the work, in [0, 1], that is done at a moment."""
        before, done = self._events[-1]
        if share <= done:
            return
        if len(self._events) > 1 and seconds - before <= _TOGETHER * (seconds - self._start):
            self._events[-1] = (before, share)
        else:
            self._wait = max(seconds - before, _FADING * self._wait)
            self._events.append((seconds, share))
        while len(self._events) > 2 and self._events[1][0] <= (self._start + seconds) / 2:
            self._events.popleft()
        (since, had), (until, has) = self._events[0], self._events[-1]
        self._left = (until, (1 - has) * (until - since) / (has - had))

    def estimate(self, seconds: float) -> float | None:
        """Return the seconds left at a moment; None before the first event.

        It counts down until the next event is due, and then waits for it.
        """
        if self._left is None:
            return None
        moment, left = self._left
        return max(left - min(seconds - moment, self._wait), 0.0)

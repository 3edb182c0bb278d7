"""An estimate of a run's remaining time, from the shares of its work completed so far."""

from collections import deque

_SAME_EVENT_SHARE = 0.005
"""Share of the elapsed time within which progress counts as one event: problems often advance together (ours)."""
_WAIT_DECAY = 0.9
"""Factor by which each shorter wait between events reduces the expected wait (ours)."""


class TimeLeft:
    """Time left at the pace of the latest half of the elapsed time.

    That pace follows a run that slows down because later generations have longer prompts. It is steadier than the last
    event's.
    """

    def __init__(self, seconds: float) -> None:
        self.restart(seconds, 0.0)

    def restart(self, seconds: float, share: float) -> None:
        """Measure the pace from here: an engine's start or a replay of the journal says nothing about it."""
        self._start = seconds
        self._events = deque([(seconds, share)])
        self._wait = 0.0
        self._left: tuple[float, float] | None = None
        """The moment of the latest event and the seconds left then; a single tuple, since another thread reads it."""

    def add(self, seconds: float, share: float) -> None:
        """Record the share of the work, in [0, 1], that is completed at a moment."""
        before, done = self._events[-1]
        if share <= done:
            return
        if len(self._events) > 1 and seconds - before <= _SAME_EVENT_SHARE * (seconds - self._start):
            self._events[-1] = (before, share)
        else:
            self._wait = max(seconds - before, _WAIT_DECAY * self._wait)
            self._events.append((seconds, share))
        while len(self._events) > 2 and self._events[1][0] <= (self._start + seconds) / 2:
            self._events.popleft()
        (start, start_share), (end, end_share) = self._events[0], self._events[-1]
        self._left = (end, (1 - end_share) * (end - start) / (end_share - start_share))

    def estimate(self, seconds: float) -> float | None:
        """Return the seconds left at a moment; None before the first event.

        The estimate counts down until the next event is due, then stays constant until it.
        """
        if self._left is None:
            return None
        moment, left = self._left
        return max(left - min(seconds - moment, self._wait), 0.0)

"""Deadlines of attempts that get no answer: long after the slowest of the latest answers."""

import asyncio
from dataclasses import dataclass, field

ANSWERS_BEFORE_LEARNED = 20
"""Answers before a deadline is derived from them. `ours`."""
TIMES_SLOWEST = 4.0
"""Deadline as a multiple of the slowest answer's time; doubled for a repeated attempt. `ours`."""
MIN_DEADLINE = 0.25
"""Shortest deadline in seconds, after hundreds of answers. `ours`."""
DEADLINE_OF_FIRST = 40.0
"""Shortest deadline in seconds times the number of answers: the slowest of a few says little. `ours`: 2 s after 20."""
FORGOTTEN = 1 / 512
"""Share of the slowest answer's excess that each answer forgets. `ours`."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt under way."""

    ends: asyncio.Timeout
    started: float
    times: float
    """Its deadline as a multiple of the usual one."""
    spared: bool = False
    """True once it got more time because this process could not have read its answer."""


@dataclass(eq=False, slots=True)
class _Size:
    """Answer times of the requests with the same limit of tokens."""

    answers: int = 0
    slowest: float = 0.0
    """Seconds of the slowest recent answer."""
    running: dict[Attempt, None] = field(default_factory=dict)
    """In the order of their starts."""
    timer: asyncio.TimerHandle | None = None


class Deadlines:
    """Ends attempts, in the event loop that made it; requests of different sizes do not affect each other."""

    def __init__(self, max_seconds: float) -> None:
        """max_seconds: for any attempt."""
        self._max_seconds = max_seconds
        self._sizes: dict[int, _Size] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, max_tokens: int, ends: asyncio.Timeout, timeouts: int) -> Attempt:
        """Watch an attempt that `ends` will end. timeouts: earlier attempts of the same request that timed out."""
        size = self._sizes.setdefault(max_tokens, _Size())
        attempt = Attempt(ends, self._loop.time(), 2.0**timeouts)
        size.running[attempt] = None
        if size.timer is None or size.timer.when() > attempt.started + self._seconds(size, attempt):
            self._watch(size)
        return attempt

    def end(self, max_tokens: int, attempt: Attempt) -> None:
        """Stop watching an attempt."""
        self._sizes[max_tokens].running.pop(attempt, None)

    def learn(self, max_tokens: int, seconds: float) -> None:
        """Record how long an answer took."""
        size = self._sizes[max_tokens]
        size.slowest = max(seconds, size.slowest - FORGOTTEN * (size.slowest - seconds))
        size.answers += 1
        if size.answers == ANSWERS_BEFORE_LEARNED:
            self._watch(size)

    def _seconds(self, size: _Size, attempt: Attempt) -> float:
        if size.answers < ANSWERS_BEFORE_LEARNED:
            return self._max_seconds
        seconds = max(MIN_DEADLINE, DEADLINE_OF_FIRST / size.answers)
        return min(self._max_seconds, attempt.times * max(seconds, TIMES_SLOWEST * size.slowest))

    def _watch(self, size: _Size, expected: float | None = None) -> None:
        """End the attempts whose time is over, and check again at the next deadline.

        expected: the time for which this check was planned.
        """
        if size.timer is not None:
            size.timer.cancel()
            size.timer = None
        now = self._loop.time()
        late = 0.0 if expected is None else max(0.0, now - expected)
        for attempt in list(size.running):
            if attempt.started + self._seconds(size, attempt) > now:
                continue
            if not attempt.spared:
                # A delay of this check has delayed reading answers, too. Extend only once: every check is slightly
                # late.
                attempt.spared = True
                attempt.started += 2 * late
            else:
                attempt.ends.reschedule(now)
                del size.running[attempt]
        if size.running:
            first = min(attempt.started + self._seconds(size, attempt) for attempt in size.running)
            size.timer = self._loop.call_at(first, self._watch, size, first)

    def close(self) -> None:
        """Stop watching all attempts."""
        for size in self._sizes.values():
            if size.timer is not None:
                size.timer.cancel()

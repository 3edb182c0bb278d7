"""Choice of a server and of the time to ask again: balancing, avoidance of failing servers, Retry-After, backoff."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from evorun.models.server.http import NO_CONNECTION, Failure

FAILURES_BEFORE_AVOIDED = 3
"""Failures in a row after which a server is avoided while others work. `ours`."""
AVOIDED_SECONDS = 15.0
"""Seconds before one call at a time tries a failing server again. `ours`."""
LIMITS_BEFORE_HELD = 3
"""Answers with a Retry-After, without a success between, after which it holds for all calls. `ours`: a single one, as
busy gateways give at random, says nothing of the other calls."""
FAILURES_ALONE = 3
"""Last attempts of a request that must fail, with other requests answered before each, for the request to be at fault.
`ours`."""
MOST_LIMITED = 100
"""Attempts of a request that a rate limit may turn away while others are answered, before they use up retries. `ours`:
a limit is nothing about the request, but a request that is larger than the whole limit must end."""


@dataclass(frozen=True)
class Patience:
    """The settings of retries, under their names in the configuration."""

    max_retries: int
    backoff_base: float
    backoff_cap: float
    max_retry_after: float

    def backoff(self, retry: int) -> float:
        """Return the seconds to wait before retry 0, 1, ...: uniform in [0, min(cap, base * 2**retry)].

        Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
        """
        # Not one of the run's seeded streams: this decides when a request is sent, never what it says. The exponent is
        # bounded because 2.0**1024 overflows.
        return random.uniform(0.0, min(self.backoff_cap, self.backoff_base * 2.0 ** min(retry, 60)))


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server of the balanced list. Times are seconds on the pool's clock."""

    url: str
    """Base URL, without a slash at its end."""
    outstanding: int = 0
    started: int = 0
    failures: int = 0
    """Failures in a row."""
    limits: int = 0
    """Answers with a Retry-After since the last success."""
    held_until: float = 0.0
    """End of the server's Retry-After; no request may go there before."""
    avoided_until: float = 0.0
    """Others are preferred until then."""

    @property
    def failing(self) -> bool:
        """True after enough failures in a row to avoid the server."""
        return self.failures >= FAILURES_BEFORE_AVOIDED


class EndpointPool:
    """Balances calls over servers by least outstanding requests."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.endpoints = [Endpoint(url) for url in urls]
        self.answers = 0
        """Usable answers so far, from all servers."""
        self._clock = clock

    def pick(self, last: Endpoint | None = None) -> Endpoint:
        """Return the server to ask next; `last`, where this call has just failed, only if no other is free.

        A failing server whose time of avoidance is over gets one call at a time until one succeeds.
        """
        if len(self.endpoints) == 1:
            return self.endpoints[0]
        now = self._clock()

        def cost(endpoint: Endpoint) -> tuple[float, bool, bool, int, int]:
            # One call finds out whether a failing server works again; a crowd of them would fail with it.
            on_trial = endpoint.failing and endpoint.outstanding > 0
            return self._free_at(endpoint, now), on_trial, endpoint is last, endpoint.outstanding, endpoint.started

        return min(self.endpoints, key=cost)

    def has_another(self, endpoint: Endpoint) -> bool:
        """Return whether a call that a server has turned away can go to another one now."""
        now = self._clock()
        return any(other is not endpoint and self._free_at(other, now) <= now for other in self.endpoints)

    def hold_seconds(self, endpoint: Endpoint) -> float:
        """Return the seconds until the end of the server's Retry-After; 0 when there is none."""
        return max(0.0, endpoint.held_until - self._clock()) if endpoint.held_until else 0.0

    def succeeded(self, endpoint: Endpoint) -> None:
        """Record an answer that is no failure."""
        endpoint.failures = endpoint.limits = 0
        endpoint.avoided_until = 0.0

    def failed(self, endpoint: Endpoint, retry_after: float | None = None) -> None:
        """Record a failure, with the seconds of the server's Retry-After if it sent one."""
        now = self._clock()
        endpoint.failures += 1
        if endpoint.failing:
            endpoint.avoided_until = now + AVOIDED_SECONDS
        if retry_after is not None:
            endpoint.limits += 1
            if endpoint.limits >= LIMITS_BEFORE_HELD:
                endpoint.held_until = max(endpoint.held_until, now + retry_after)

    def avoid(self, endpoint: Endpoint) -> None:
        """Avoid a server from the start, as one found unreachable when the engine opened."""
        endpoint.failures = FAILURES_BEFORE_AVOIDED - 1
        self.failed(endpoint)

    @staticmethod
    def _free_at(endpoint: Endpoint, now: float) -> float:
        return max(endpoint.held_until, endpoint.avoided_until, now)


class Attempts:
    """The failed attempts of one request, and what they say: of the request, or of the servers."""

    def __init__(self, pool: EndpointPool) -> None:
        self.failed = 0
        self._limited = 0
        self._alone = 0
        self._pool = pool
        self._answers = pool.answers

    def add(self, failure: Failure) -> None:
        """Count a failed attempt."""
        others_answered = self._pool.answers > self._answers
        self._answers = self._pool.answers
        self.failed += 1
        self._limited += others_answered and failure.kind == "http_429"
        # In a row, so that servers which broke down meanwhile are not taken for a fault of the request; and no request
        # can be at fault where none has arrived.
        self._alone = self._alone + (failure.kind != NO_CONNECTION) if others_answered else 0

    def exhausted(self, max_retries: int) -> bool:
        """Return whether all retries are used up."""
        return self.failed - min(self._limited, MOST_LIMITED) > max_retries

    @property
    def failed_alone(self) -> bool:
        """True when the request fails again and again while others are answered: nothing is wrong with the servers."""
        return self._alone >= FAILURES_ALONE


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that Retry-After asks for (a number or an HTTP date, RFC 9110 section 10.2.3), or None.

    A date is taken relative to the response's own Date header where it has one, so that clocks need not agree.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    until = _http_date(value)
    if until is None:
        return None
    since = _http_date(headers.get("Date", "")) or now or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _http_date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)

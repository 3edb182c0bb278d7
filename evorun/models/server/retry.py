"""Choice of a server and of the time to ask again: balancing, avoidance of failing servers, Retry-After, backoff."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FAILURES_BEFORE_AVOIDED = 3
"""Failures in a row after which a server is avoided while others work. `ours`."""
AVOIDED_SECONDS = 15.0
"""Seconds before one call at a time tries a failing server again. `ours`."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server of the balanced list. Times are seconds on the pool's clock."""

    url: str
    """Base URL, without a slash at its end."""
    outstanding: int = 0
    started: int = 0
    failures: int = 0
    """Failures in a row."""
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
        self._clock = clock

    def pick(self, last: Endpoint | None = None) -> Endpoint:
        """Return the server to ask next; `last`, where this call has just failed, only if no other is free.

        A failing server whose time of avoidance is over gets one call at a time until one succeeds.
        """
        if len(self.endpoints) == 1:
            return self.endpoints[0]
        now = self._clock()

        def cost(endpoint: Endpoint) -> tuple[float, bool, bool, int, int]:
            free_at = max(endpoint.held_until, endpoint.avoided_until, now)
            # One call finds out whether a failing server works again; a crowd of them would fail with it.
            on_trial = endpoint.failing and endpoint.outstanding > 0
            return free_at, on_trial, endpoint is last, endpoint.outstanding, endpoint.started

        return min(self.endpoints, key=cost)

    def hold_seconds(self, endpoint: Endpoint) -> float:
        """Return the seconds until the end of the server's Retry-After; 0 when there is none."""
        return max(0.0, endpoint.held_until - self._clock()) if endpoint.held_until else 0.0

    def succeeded(self, endpoint: Endpoint) -> None:
        """Record a usable answer."""
        endpoint.failures = 0
        endpoint.avoided_until = 0.0

    def failed(self, endpoint: Endpoint, retry_after: float | None = None) -> None:
        """Record a failure, with the seconds of the server's Retry-After if it sent one."""
        now = self._clock()
        endpoint.failures += 1
        if endpoint.failing:
            endpoint.avoided_until = now + AVOIDED_SECONDS
        if retry_after is not None:
            endpoint.held_until = max(endpoint.held_until, now + retry_after)

    def avoid(self, endpoint: Endpoint) -> None:
        """Avoid a server from the start, as one found unreachable when the engine opened."""
        endpoint.failures = FAILURES_BEFORE_AVOIDED - 1
        self.failed(endpoint)


def backoff(retry: int, base: float, cap: float) -> float:
    """Return the seconds to wait before retry 0, 1, ...: uniform in [0, min(cap, base * 2**retry)].

    Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    # Not one of the run's seeded streams: this decides when a request is sent, never what it says. The exponent is
    # bounded because 2.0**1024 overflows.
    return random.uniform(0.0, min(cap, base * 2.0 ** min(retry, 60)))


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
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)

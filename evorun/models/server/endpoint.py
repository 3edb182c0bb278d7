"""One server of a pool: its load, its latency, and the rate of requests that it admits."""

import asyncio
import math
from dataclasses import dataclass, field

from evorun.models.server.affinity import SentPrefixes

PACE_INCREASE, PACE_DECREASE = 1.02, 0.8
"""Factors of a server's pace: per answer, and per single answer of "too many requests". `ours`: in the long run one in
12 answers is of the second kind."""
MIN_PACE_SHARE = 0.9
"""Lowest pace after single rate limits, as a share of the rate known to be admitted: they may be random. `ours`."""
MAX_RANDOM_SHARE = 1 / 3
"""Share of rejected requests above which a rate limit is not random and may have become lower. `ours`."""
IDLE_SECONDS = 5.0
"""Seconds without a request after which earlier requests say nothing about the admitted rate. `ours`."""
SMOOTHING = 32
"""Approximate number of answers over which latency and load are means. `ours`."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """The state of one server. Times are seconds on the event loop's clock."""

    url: str
    """Base URL, without a slash at its end."""
    max_in_flight: int
    """Maximum requests in flight. After an outage it starts at one and grows by one per answer."""
    down_since: float | None = None
    """Time when it failed its probes; None while it is up."""
    in_flight: int = 0
    preferred_by: int = 0
    """Waiting calls that would rather have this server than another."""
    prefixes: SentPrefixes = field(default_factory=SentPrefixes)
    """Prompts that it was lately sent, and may still have in its cache."""
    assigned: int = 0
    """Attempts that were given this server so far."""
    sent: int = 0
    """Requests sent so far; a request's number is its position among them."""
    last_sent: float = 0.0
    answers: int = 0
    failures: int = 0
    """Consecutive failures."""
    latency: float = 0.0
    """Smoothed seconds per answer."""
    mean_load: float = 0.0
    """Smoothed number of requests in flight when an answered request was sent."""
    variance: float = 0.0
    covariance: float = 0.0
    """Smoothed variance of the load, and its covariance with latency."""
    last_assigned: float = 0.0
    """Time when an attempt was last given this server."""
    consecutive_rate_limits: int = 0
    """Rate-limit answers since the last success."""
    rate_limited_since: float = 0.0
    first_rate_limited: int = 0
    """Time of the first of them, and the number of its request."""
    limits_all_requests: bool = False
    """True once they were the majority of the requests sent meanwhile."""
    held_until: float = 0.0
    """End of the server's Retry-After: no request is sent before."""
    pace: float = math.inf
    """Maximum requests per second; infinite while the server is not known to limit its rate."""
    next_request_at: float = 0.0
    """Earliest time of the next request at this pace."""
    admitted: int = 0
    rejected: int = 0
    """Requests that ended otherwise, and those that ended with a rate limit."""
    limit_reached: tuple[float, int, int] | None = None
    """Last time when the rate limit was reached, with the two counts at that time."""
    admitted_rate: float = 0.0
    """Requests per second admitted between two such times; the best of them while limits may be random."""
    probing: "asyncio.Task[None] | None" = None
    """Sends probes until one is answered."""
    listeners: "list[asyncio.Future[None]]" = field(default_factory=list)
    """Resolved at its next answer, or when it goes down."""
    cause: str = ""
    """The last failure of a server that is down, with advice; else empty."""
    warning_timer: "asyncio.TimerHandle | None" = None
    """Will warn that the server is down."""
    warned: bool = False

    @property
    def up(self) -> bool:
        """True while the server receives calls."""
        return self.down_since is None

    @property
    def load(self) -> int:
        """Requests in flight, and those that wait for it."""
        return self.in_flight + self.preferred_by

    @property
    def available_at(self) -> float:
        """Earliest time of its next request."""
        return max(self.held_until, self.next_request_at)

    def has_room(self, now: float) -> bool:
        """Return whether it may be sent a request now."""
        return self.in_flight < self.max_in_flight and self.available_at <= now

    def expected_latency(self) -> float:
        """Return the expected seconds of one more request, by a linear regression of latency on load."""
        slope = max(0.0, self.covariance / self.variance) if self.variance > 1e-9 else 0.0
        return max(0.1 * self.latency, self.latency + slope * (self.in_flight + 1 - self.mean_load))

    def count_request(self, now: float) -> int:
        """Count a request that is sent now, and return its number."""
        if now - max(self.last_sent, self.held_until) > IDLE_SECONDS:
            self.limit_reached = None
        self.sent += 1
        self.last_sent = now
        return self.sent

    def slow_down(self) -> None:
        """Lower the pace after a single rate limit, but not far below a rate known to be admitted."""
        self.pace = max(PACE_DECREASE * self.pace, min(self.pace, MIN_PACE_SHARE * self.admitted_rate))

    def learn_rate_limit(self, now: float) -> None:
        """Update the admitted rate at a time when the server admits nothing more."""
        if self.limit_reached is not None:
            since, admitted_before, rejected_before = self.limit_reached
            admitted, rejected = self.admitted - admitted_before, self.rejected - rejected_before
            if not admitted or now - since < 2 * self.latency:  # requests in flight would not count
                return
            # A limit that was reached has no burst left: until it is reached again, the server admits at most its rate.
            rate = admitted / (now - since)
            is_random = rejected <= MAX_RANDOM_SHARE * (admitted + rejected)
            self.admitted_rate = max(rate, self.admitted_rate) if is_random else rate
            self.pace = min(self.pace, self.admitted_rate)
        self.limit_reached = now, self.admitted, self.rejected

    def record_latency(self, load: int, seconds: float) -> None:
        """Record an answer's time, and the number of requests in flight when its request was sent."""
        share = 1 / min(self.answers, SMOOTHING)
        more, longer = load - self.mean_load, seconds - self.latency
        self.mean_load += share * more
        self.latency += share * longer
        self.variance = (1 - share) * (self.variance + share * more * more)
        self.covariance = (1 - share) * (self.covariance + share * more * longer)

    def notify(self) -> None:
        """Wake up all coroutines in `wait_for_change`."""
        for future in self.listeners:
            if not future.done():
                future.set_result(None)
        self.listeners.clear()

    async def wait_for_change(self) -> None:
        """Wait until the server answers anything or goes down."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listeners.append(future)
        await future

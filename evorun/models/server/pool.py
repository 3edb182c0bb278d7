"""The servers of one model: which of them gets the next call, and what becomes of calls while none answers."""

import asyncio
import logging
import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from evorun.errors import EngineError
from evorun.models.server.messages import time_span

log = logging.getLogger(__name__)

LIMITS_BEFORE_HELD = 5
"""Answers that tell of a rate limit, without a success between, after which their Retry-After holds for all calls, if
they are also most of what was sent meanwhile. `ours`: a few, as busy gateways give at random, say nothing of the other
calls, and they come at once, long before the answers to requests that were sent with them."""
FASTER, SLOWER = 1.02, 0.8
"""Factors of a server's pace at each answer, and at each that told of a rate limit. `ours`: one in 12 is the latter in
the long run."""
LOWEST_PACE = 0.9
"""Of a server's rate: single limits slow it down no further, as they may be random. `ours`."""
MOST_TURNED_AWAY = 1 / 3
"""Share of requests turned away, above which a rate limit is not random, and may have become lower. `ours`."""
IDLE = 5.0
"""Seconds without a request, after which earlier ones say nothing of a server's rate. `ours`."""
SMOOTHED = 32
"""Answers that a server's latency is a mean of, about. `ours`."""
TRIED_AFTER = 30.0
"""A server that others are preferred to gets one call after so many times its latency. `ours`."""
AVOIDED = 2.0
"""A call goes back to the server where it has just failed if the others take so many times as long. `ours`."""
SAID_AFTER = 5.0
"""Seconds of an outage before it is worth a line. `ours`."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server of the balanced list. Times are seconds on the event loop's clock."""

    url: str
    """Base URL, without a slash at its end."""
    limit: int
    """Requests in flight at most; after an outage it grows from one, by one with each answer."""
    down_since: float | None = None
    """The moment when a control was not answered; None: the server is up."""
    in_flight: int = 0
    started: int = 0
    sent: int = 0
    """Requests that have left, so that each has a number."""
    last_sent: float = 0.0
    answers: int = 0
    failures: int = 0
    """In a row."""
    latency: float = 0.0
    """Seconds that answers take, smoothed."""
    load: float = 0.0
    """Requests in flight at the beginning of those that were answered, smoothed."""
    variance: float = 0.0
    covariance: float = 0.0
    """Of the load, and of load and latency."""
    last_begun: float = 0.0
    """The moment when the last request was sent."""
    limits: int = 0
    """Answers that told of a rate limit since the last success."""
    limited_since: float = 0.0
    limited_from: int = 0
    """The moment of the first of them, and the number of its request."""
    limits_all: bool = False
    """True once they were most of what was sent."""
    held_until: float = 0.0
    """End of the server's Retry-After; no request may go there before."""
    pace: float = math.inf
    """Requests per second at most: the rate that the server admits, as far as it is known to have one."""
    next_at: float = 0.0
    """The moment of the next request, by this pace."""
    admitted: int = 0
    turned_away: int = 0
    """Requests that have ended without telling of a rate limit, and with it."""
    reached: tuple[float, int, int] | None = None
    """The last moment when the rate limit was reached, with the two counts until then."""
    rate: float = 0.0
    """Requests per second that were admitted from one such moment to the next, at best where limits may be random."""
    prober: "asyncio.Task[None] | None" = None
    """Asks controls until one is answered."""
    changed: "list[asyncio.Future[None]]" = field(default_factory=list)
    """Waits for an answer, or for the server to be dropped."""
    cause: str = ""
    """The last failure of a server that is down; empty before any."""
    saying: "asyncio.TimerHandle | None" = None
    """Will say that the server is down."""
    said: bool = False

    @property
    def up(self) -> bool:
        """True while the server is given calls."""
        return self.down_since is None

    @property
    def free_at(self) -> float:
        """The moment from which a request may go there."""
        return max(self.held_until, self.next_at)

    def expected_latency(self) -> float:
        """Return the seconds that one more request would take, by a regression of latency on load."""
        slope = max(0.0, self.covariance / self.variance) if self.variance > 1e-9 else 0.0
        return max(0.1 * self.latency, self.latency + slope * (self.in_flight + 1 - self.load))

    def count_request(self, now: float) -> int:
        """Count a request that leaves now, and return its number."""
        if now - max(self.last_sent, self.held_until) > IDLE:
            self.reached = None
        self.sent += 1
        self.last_sent = now
        return self.sent

    def slow_down(self) -> None:
        """Lower the pace after a single rate limit, but not far below a rate that is known to be admitted."""
        self.pace = max(SLOWER * self.pace, min(self.pace, LOWEST_PACE * self.rate))

    def reach_limit(self, now: float) -> None:
        """Learn the rate that the server admits, at a moment when it admits nothing more."""
        if self.reached is not None:
            since, admitted, turned_away = self.reached
            admitted, turned_away = self.admitted - admitted, self.turned_away - turned_away
            if not admitted or now - since < 2 * self.latency:  # requests in flight would not count
                return
            # A limit that is reached has nothing in store: until it is reached again it admits its rate at most.
            rate = admitted / (now - since)
            self.rate = rate if turned_away > MOST_TURNED_AWAY * (admitted + turned_away) else max(rate, self.rate)
            self.pace = min(self.pace, self.rate)
        self.reached = now, self.admitted, self.turned_away

    def learn(self, load: int, seconds: float) -> None:
        """Note how long an answer took, and how many requests were in flight when its own was sent."""
        share = 1 / min(self.answers, SMOOTHED)
        more, longer = load - self.load, seconds - self.latency
        self.load += share * more
        self.latency += share * longer
        self.variance = (1 - share) * (self.variance + share * more * more)
        self.covariance = (1 - share) * (self.covariance + share * more * longer)

    def tell(self) -> None:
        """Wake up whoever waits for news."""
        for future in self.changed:
            if not future.done():
                future.set_result(None)
        self.changed.clear()

    async def news(self) -> None:
        """Wait until the server answers anything, or is dropped."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed.append(future)
        await future


class EndpointPool:
    """Gives servers to calls, a bounded number of calls at once to each; the call that came first is served first.

    While no server is up, all calls wait, and `max_outage` seconds later they end with EngineError. Belongs to one
    event loop.
    """

    def __init__(self, urls: Sequence[str], concurrency: int, max_outage: float, max_retry_after: float) -> None:
        """concurrency: requests in flight at most, on each server. max_outage, max_retry_after: seconds."""
        self.endpoints = [Endpoint(url, concurrency) for url in urls]
        if len(urls) > 1:  # a control shows how fast each is, before any call is kept waiting by a slow one
            for endpoint in self.endpoints:
                endpoint.down_since = asyncio.get_running_loop().time()
        self.answers = 0
        """Of all servers."""
        self._concurrency = concurrency
        self._max_outage = max_outage
        self._max_retry_after = max_retry_after
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, Endpoint | None, asyncio.Future[Endpoint]]] = []
        """Calls without a server, by number; each with the server where it has just failed."""
        self._held: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        """Ends an outage that is too long."""
        self._failure: str | None = None
        """Why no call can be served any more."""

    async def take(self, number: int, last: Endpoint | None = None) -> Endpoint:
        """Return the server for the next attempt of a call, to be given back with `give_back`.

        number: of the call, in the order of arrival. last: where the call has just failed; taken only if the others
        would take far longer. Raises EngineError after an outage that was too long, and when the engine is closed.
        """
        if self._failure is not None:
            raise EngineError(self._failure)
        now = self._loop.time()
        if not self._waiting and (endpoint := self._choose(last, now)) is not None:
            return self._begin(endpoint)
        turn: asyncio.Future[Endpoint] = self._loop.create_future()
        insort(self._waiting, (number, last, turn), key=lambda waiting: waiting[0])
        self._serve_waiting()  # a server may be free by now, whose timer is due and would be cancelled
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # it was this call's turn already
                self.give_back(turn.result())
            raise

    def give_back(self, endpoint: Endpoint) -> None:
        """Give back a server after an attempt, whatever came of it."""
        endpoint.in_flight -= 1
        if self._waiting:
            self._serve_waiting()

    def answered(self, endpoint: Endpoint, load: int, seconds: float) -> None:
        """Record an answer that is no failure, with the requests in flight when its own was sent, and its time."""
        self.answers += 1
        endpoint.answers += 1
        endpoint.admitted += 1
        endpoint.learn(load, seconds)
        endpoint.failures = endpoint.limits = 0
        endpoint.pace *= FASTER
        if endpoint.changed:
            endpoint.tell()
        if not endpoint.up:
            self._take_back(endpoint)
        elif endpoint.limit < self._concurrency:
            endpoint.limit += 1
            self._serve_waiting()

    def limited(self, endpoint: Endpoint, number: int, retry_after: float | None) -> None:
        """Record an answer that told of a rate limit, with the seconds of its Retry-After if it had one.

        number: of the request among those that were sent to the server.
        """
        now = self._loop.time()
        endpoint.limits += 1
        endpoint.turned_away += 1
        if endpoint.limits == 1:
            endpoint.limited_since, endpoint.limited_from, endpoint.limits_all = now, number, False
        sent = endpoint.sent - endpoint.limited_from + 1
        limits_all = endpoint.limits >= LIMITS_BEFORE_HELD and 2 * endpoint.limits > sent
        if now < endpoint.held_until:
            pass  # to a request that was sent before
        elif limits_all and not endpoint.limits_all:
            endpoint.reach_limit(now)
            endpoint.limits_all = True
        elif endpoint.limits == 1:
            endpoint.slow_down()
        if retry_after is not None and limits_all:
            endpoint.held_until = max(endpoint.held_until, now + retry_after)
        if now - endpoint.limited_since > self._max_outage:
            span = time_span(self._max_outage)
            self.fail(f"{endpoint.url} has turned all requests away for {span} (engine.max_outage), for their number")

    def has_another(self, endpoint: Endpoint) -> bool:
        """Tell whether a call that a server has turned away can go to another one now."""
        now = self._loop.time()
        return any(other is not endpoint and other.up and other.held_until <= now for other in self.endpoints)

    def drop(self, endpoint: Endpoint, cause: str) -> None:
        """Give a server no more calls until it answers something. cause: the failure, and what to do."""
        endpoint.cause = f"{endpoint.url} unreachable: {cause}"
        now = self._loop.time()
        if endpoint.up:
            endpoint.down_since = now
            endpoint.limit = 1  # a crowd of calls would fail with a server that has just come back
            endpoint.tell()
        if endpoint.saying is None:
            endpoint.saying = self._loop.call_at(now + SAID_AFTER, self.say, endpoint)
        if self._giving_up is None and all(other.cause for other in self.endpoints):
            self._giving_up = self._loop.call_at(now + self._max_outage, self._give_up)

    @property
    def any_down(self) -> bool:
        """True while a server is down, or has not answered yet."""
        return any(endpoint.down_since is not None for endpoint in self.endpoints)

    def close(self, reason: str) -> None:
        """End all calls that wait with EngineError, and those that come."""
        self.fail(reason)
        for endpoint in self.endpoints:
            endpoint.down_since = self._loop.time()
            endpoint.tell()
            for running in (endpoint.prober, endpoint.saying, self._held, self._giving_up):
                if running is not None:
                    running.cancel()

    def _choose(self, last: Endpoint | None, now: float) -> Endpoint | None:
        """Return the server that the next call goes to; None where it is to wait for one.

        The one with the fewest requests in flight, of those that are expected to answer within a tenth of the earliest
        time; a server that is busy counts with the time until it has room.
        """
        if len(self.endpoints) == 1:
            [endpoint] = self.endpoints
            has_room = endpoint.up and endpoint.in_flight < endpoint.limit and endpoint.free_at <= now
            return endpoint if has_room else None
        up = [endpoint for endpoint in self.endpoints if endpoint.up]
        for endpoint in up:
            # Nobody would learn otherwise that a server has become faster.
            if not endpoint.in_flight and now - endpoint.last_begun > TRIED_AFTER * endpoint.latency:
                return endpoint
        expected = {endpoint: self._seconds(endpoint, last, now) for endpoint in up}
        earliest = min(expected.values(), default=0.0)
        good = [endpoint for endpoint, seconds in expected.items() if seconds <= 1.1 * earliest]
        free = [endpoint for endpoint in good if endpoint.in_flight < endpoint.limit and endpoint.free_at <= now]
        return min(free, key=lambda endpoint: (endpoint.in_flight, endpoint.started), default=None)

    def _seconds(self, endpoint: Endpoint, last: Endpoint | None, now: float) -> float:
        """Return the expected time until a server answers the last of the calls that wait, if it gets them all.

        last: where the call has just failed; it is one of the first that wait, and has reason to go elsewhere.
        """
        seconds = endpoint.expected_latency() + max(0.0, endpoint.free_at - now)
        if endpoint.in_flight >= endpoint.limit:
            seconds += endpoint.latency * (1 if last else len(self._waiting) + 1) / endpoint.limit
        return AVOIDED * seconds if endpoint is last else seconds

    def _begin(self, endpoint: Endpoint) -> Endpoint:
        endpoint.in_flight += 1
        endpoint.started += 1
        endpoint.last_begun = self._loop.time()
        endpoint.next_at = max(endpoint.last_begun, endpoint.next_at) + 1 / endpoint.pace
        return endpoint

    def _serve_waiting(self) -> None:
        """Give servers to the first calls that wait, as long as any are free."""
        first = 0
        avoided: set[Endpoint] = set()
        """Calls that have failed there wait for another server; that is no reason for those behind them to wait."""
        while first < len(self._waiting):
            _, last, turn = self._waiting[first]
            if not turn.done():
                endpoint = None if last in avoided else self._choose(last, self._loop.time())
                if endpoint is None:
                    if last is None:
                        break
                    avoided.add(last)
                    first += 1
                    continue
                turn.set_result(self._begin(endpoint))
            del self._waiting[first]
        if self._waiting:
            self._wait_for_held(self._loop.time())

    def _wait_for_held(self, now: float) -> None:
        """Serve the calls that wait when the first server is no longer held, by its Retry-After or its pace.

        now: the moment for which no server was found. One that was held then may be free by now, and nothing else might
        ever serve the calls.
        """
        up = [endpoint for endpoint in self.endpoints if endpoint.up]
        first = min(up, key=lambda endpoint: endpoint.held_until, default=None)
        if first is not None and first.held_until - now > self._max_retry_after:
            self.fail(
                f"{first.url} asks to wait {first.held_until - now:.0f} s before the next request, more than "
                f"engine.max_retry_after={self._max_retry_after:g}; is a quota used up?"
            )
        held = [endpoint.free_at for endpoint in up if endpoint.free_at > now]
        if self._held is not None:
            self._held.cancel()
        if held:  # else whatever frees a server serves them
            self._held = self._loop.call_at(min(held), self._serve_waiting)

    # --- outages ---

    def _take_back(self, endpoint: Endpoint) -> None:
        if endpoint.saying is not None:
            endpoint.saying.cancel()
        if endpoint.said and endpoint.down_since is not None:
            log.warning("%s answers again, after %s", endpoint.url, time_span(self._loop.time() - endpoint.down_since))
        endpoint.down_since, endpoint.saying, endpoint.said = None, None, False
        endpoint.cause, endpoint.last_begun = "", self._loop.time()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self._serve_waiting()

    def say(self, endpoint: Endpoint) -> None:
        """Tell the user that a server is down, once."""
        if endpoint.said:
            return
        endpoint.said = True
        if not all(other.cause for other in self.endpoints):
            log.warning("%s; going on with the other servers", endpoint.cause)
        else:
            span = time_span(self._max_outage)
            log.warning("no server answers (%s); calls wait for up to %s (engine.max_outage)", endpoint.cause, span)

    def _give_up(self) -> None:
        causes = "; ".join(endpoint.cause for endpoint in self.endpoints)
        self.fail(f"{causes}; nothing was answered for {time_span(self._max_outage)} (engine.max_outage)")

    def fail(self, reason: str) -> None:
        """End all calls that wait with EngineError, and those that come."""
        self._failure = reason
        waiting, self._waiting = self._waiting, []
        for _, _, turn in waiting:
            if not turn.done():
                turn.set_exception(EngineError(reason))

"""The servers of one model: the choice of the server for each attempt, rate limits, and outages."""

import asyncio
import logging
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evorun.errors import EngineError
from evorun.models.server.affinity import SLOWER, balanced, hash_blocks
from evorun.models.server.endpoint import PACE_INCREASE, Endpoint
from evorun.models.server.messages import time_span

log = logging.getLogger(__name__)

RATE_LIMITS_BEFORE_HOLD = 5
"""Consecutive rate-limit answers after which their Retry-After holds for all calls, if they are also the majority of
the requests sent meanwhile. `ours`: a few may be random, as from busy gateways, and they arrive long before the answers
to requests that were sent with them."""
TRIED_AGAIN_AFTER = 30.0
"""Multiple of its latency after which an idle server gets one call, though others are preferred. `ours`."""
PENALTY_AFTER_FAILURE = 2.0
"""Factor on the expected time of the server where a call has just failed. `ours`."""
WARNED_AFTER = 5.0
"""Seconds of an outage before the user is warned. `ours`."""
OVERTAKING = 256
"""Most later calls that go before a waiting one because they prefer the server that has room. `ours`."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call without a server."""

    number: int
    last: Endpoint | None
    """Where the call has just failed."""
    blocks: Sequence[int]
    preferred: Endpoint | None
    """The server that has the beginning of its prompt, or will by then; None: any."""
    turn: "asyncio.Future[Endpoint]"

    def forget_preference(self) -> None:
        """Take any server; idempotent."""
        if self.preferred is not None:
            self.preferred.preferred_by -= 1
            self.preferred = None


class EndpointPool:
    """Assigns servers to calls, first come, first served, with a bounded number of requests in flight per server.

    While no server is up, all calls wait; after `max_outage` seconds they end with EngineError. Belongs to one event
    loop.
    """

    def __init__(self, urls: Sequence[str], concurrency: int, max_outage: float, max_retry_after: float) -> None:
        """concurrency: maximum requests in flight per server. max_outage, max_retry_after: seconds."""
        self.endpoints = [Endpoint(url, concurrency) for url in urls]
        if len(urls) > 1:  # a probe measures each, before a call waits for a slow one
            for endpoint in self.endpoints:
                endpoint.down_since = asyncio.get_running_loop().time()
        self.answers = 0
        """Answers of all servers."""
        self._concurrency = concurrency
        self._max_outage = max_outage
        self._max_retry_after = max_retry_after
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Waiting] = []
        """In order of number."""
        self._wake_up: asyncio.TimerHandle | None = None
        """Serves waiting calls when the next server becomes available."""
        self._outage_ends: asyncio.TimerHandle | None = None
        """Ends all calls when an outage is too long."""
        self._failure: str | None = None
        """Reason why no call can be served any more."""

    async def acquire(self, number: int, last: Endpoint | None = None, body: bytes = b"") -> Endpoint:
        """Return the server for the next attempt of a call, to be released with `release`.

        number: of the call, in order of arrival. last: the server where the call has just failed; chosen again only if
        the others would take far longer. body: of the request, for prefix affinity; empty for none. Raises EngineError
        after an outage that was too long, and when the engine is closed.
        """
        if self._failure is not None:
            raise EngineError(self._failure)
        now = self._loop.time()
        blocks = hash_blocks(body) if len(self.endpoints) > 1 else ()
        if not self._waiting and (endpoint := self._choose(last, now, blocks)) is not None:
            return self._assign(endpoint, blocks)
        preferred = self._prefer(now, blocks) if blocks and last is None else None
        turn: asyncio.Future[Endpoint] = self._loop.create_future()
        call = _Waiting(number, last, blocks, preferred, turn)
        insort(self._waiting, call, key=lambda waiting: waiting.number)
        if preferred is not None:
            preferred.preferred_by += 1
            preferred.prefixes.add(blocks)  # so that calls behind this one, with the same prompt, go there too
        self._serve_waiting()  # a server whose timer is due may be free by now; the timer would be cancelled
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # a server was already assigned
                self.release(turn.result())
            raise
        finally:
            call.forget_preference()

    def release(self, endpoint: Endpoint) -> None:
        """Release a server after an attempt, whatever its outcome."""
        endpoint.in_flight -= 1
        if self._waiting:
            self._serve_waiting()

    def record_answer(self, endpoint: Endpoint, load: int, seconds: float) -> None:
        """Record an answer that is no failure.

        load: requests in flight when its own was sent. seconds: its time.
        """
        self.answers += 1
        endpoint.answers += 1
        endpoint.admitted += 1
        endpoint.record_latency(load, seconds)
        endpoint.failures = endpoint.consecutive_rate_limits = 0
        endpoint.pace *= PACE_INCREASE
        if endpoint.listeners:
            endpoint.notify()
        if not endpoint.up:
            self._mark_up(endpoint)
        elif endpoint.max_in_flight < self._concurrency:
            endpoint.max_in_flight += 1
            self._serve_waiting()

    def record_rate_limit(self, endpoint: Endpoint, number: int, retry_after: float | None) -> None:
        """Record a rate-limit answer.

        number: of the request, as `Endpoint.count_request` returned it. retry_after: seconds, or None.
        """
        now = self._loop.time()
        endpoint.consecutive_rate_limits += 1
        endpoint.rejected += 1
        if endpoint.consecutive_rate_limits == 1:
            endpoint.rate_limited_since, endpoint.first_rate_limited, endpoint.limits_all_requests = now, number, False
        sent = endpoint.sent - endpoint.first_rate_limited + 1
        limits_all = (
            endpoint.consecutive_rate_limits >= RATE_LIMITS_BEFORE_HOLD and 2 * endpoint.consecutive_rate_limits > sent
        )
        if now < endpoint.held_until:
            pass  # the request was sent before the hold
        elif limits_all and not endpoint.limits_all_requests:
            endpoint.learn_rate_limit(now)
            endpoint.limits_all_requests = True
        elif endpoint.consecutive_rate_limits == 1:
            endpoint.slow_down()
        if retry_after is not None and limits_all:
            endpoint.held_until = max(endpoint.held_until, now + retry_after)
        if now - endpoint.rate_limited_since > self._max_outage:
            span = time_span(self._max_outage)
            self.fail_all(f"{endpoint.url} has rejected all requests for {span} (engine.max_outage) by its rate limit")

    def has_alternative(self, endpoint: Endpoint) -> bool:
        """Return whether a call that this server has rejected can go to another server now."""
        now = self._loop.time()
        return any(other is not endpoint and other.up and other.held_until <= now for other in self.endpoints)

    def mark_down(self, endpoint: Endpoint, cause: str) -> None:
        """Send a server no more calls until it answers a probe. cause: the failure, with advice."""
        endpoint.cause = f"{endpoint.url} unreachable: {cause}"
        endpoint.prefixes.clear()
        for call in self._waiting:
            if call.preferred is endpoint:
                call.forget_preference()
        now = self._loop.time()
        if endpoint.up:
            endpoint.down_since = now
            endpoint.max_in_flight = 1  # a burst of calls could overload a server that has just restarted
            endpoint.notify()
        if endpoint.warning_timer is None:
            endpoint.warning_timer = self._loop.call_at(now + WARNED_AFTER, self.warn_of_outage, endpoint)
        if self._outage_ends is None and all(other.cause for other in self.endpoints):
            self._outage_ends = self._loop.call_at(now + self._max_outage, self._end_outage)

    @property
    def any_down(self) -> bool:
        """True while a server is down, or has not answered yet."""
        return any(endpoint.down_since is not None for endpoint in self.endpoints)

    def close(self, reason: str) -> None:
        """End all waiting and future calls with EngineError."""
        self.fail_all(reason)
        for endpoint in self.endpoints:
            endpoint.down_since = self._loop.time()
            endpoint.notify()
            for running in (endpoint.probing, endpoint.warning_timer, self._wake_up, self._outage_ends):
                if running is not None:
                    running.cancel()

    def _choose(self, last: Endpoint | None, now: float, blocks: Sequence[int] = ()) -> Endpoint | None:
        """Return the server for the next call, or None if the call has to wait.

        Of the servers about as fast as the fastest, it is the one that was sent most of the prompt's beginning, while
        their loads are balanced. Otherwise, and for a call that has just failed, it is one whose expected time is
        within a tenth of the shortest, with the fewest requests in flight. The expected time of a full server includes
        the wait for a free place.
        """
        if len(self.endpoints) == 1:
            [endpoint] = self.endpoints
            return endpoint if endpoint.up and endpoint.has_room(now) else None
        up = [endpoint for endpoint in self.endpoints if endpoint.up]
        for endpoint in up:
            # Otherwise a server that has become faster would go unnoticed.
            if not endpoint.in_flight and now - endpoint.last_assigned > TRIED_AGAIN_AFTER * endpoint.latency:
                return endpoint
        expected = {endpoint: self._expected_seconds(endpoint, last, now) for endpoint in up}
        if blocks and last is None:
            holders = [endpoint for endpoint in self._holders(expected, blocks) if endpoint.has_room(now)]
            if holders:
                return min(holders, key=lambda endpoint: (endpoint.load, endpoint.assigned))
        good = _within(1.1, expected)
        free = [endpoint for endpoint in good if endpoint.has_room(now)]
        return min(free, key=lambda endpoint: (endpoint.in_flight, endpoint.assigned), default=None)

    def _prefer(self, now: float, blocks: Sequence[int]) -> Endpoint | None:
        """Return the server for which a call waits rather than for another; None while all are down."""
        expected = {endpoint: self._expected_seconds(endpoint, None, now) for endpoint in self.endpoints if endpoint.up}
        candidates = self._holders(expected, blocks) or _within(SLOWER, expected)
        return min(candidates, key=lambda endpoint: (endpoint.load, endpoint.assigned), default=None)

    @staticmethod
    def _holders(expected: Mapping[Endpoint, float], blocks: Sequence[int]) -> list[Endpoint]:
        """Return the servers that were sent most of a prompt's beginning; none where load decides."""
        fast = _within(SLOWER, expected)
        if not fast or not balanced([endpoint.load for endpoint in fast]):
            return []
        matches = {endpoint: endpoint.prefixes.match(blocks) for endpoint in fast}
        longest = max(matches.values())
        return [endpoint for endpoint, match in matches.items() if match == longest > 0]

    def _expected_seconds(self, endpoint: Endpoint, last: Endpoint | None, now: float) -> float:
        """Return the expected seconds until a server answers the last waiting call, if it serves all of them.

        last: the server where the call has just failed. Such a call is among the first that wait.
        """
        seconds = endpoint.expected_latency() + max(0.0, endpoint.available_at - now)
        if endpoint.in_flight >= endpoint.max_in_flight:
            seconds += endpoint.latency * (1 if last else len(self._waiting) + 1) / endpoint.max_in_flight
        return PENALTY_AFTER_FAILURE * seconds if endpoint is last else seconds

    def _assign(self, endpoint: Endpoint, blocks: Sequence[int]) -> Endpoint:
        endpoint.in_flight += 1
        endpoint.prefixes.add(blocks)
        endpoint.assigned += 1
        endpoint.last_assigned = self._loop.time()
        endpoint.next_request_at = max(endpoint.last_assigned, endpoint.next_request_at) + 1 / endpoint.pace
        return endpoint

    def _serve_waiting(self) -> None:
        """Assign free servers to waiting calls: to the first that prefers the server, otherwise to the first."""
        first = 0
        avoided: set[Endpoint] = set()
        """Calls that failed on these servers wait for another one, without holding up the calls behind them."""
        while first < len(self._waiting):
            call = self._waiting[first]
            if call.turn.done():
                del self._waiting[first]
                continue
            endpoint = None if call.last in avoided else self._choose(call.last, self._loop.time())
            if endpoint is None:
                if call.last is None or len(self.endpoints) == 1:
                    break  # no server has room for any call
                avoided.add(call.last)
                first += 1
                continue
            at = first if call.preferred in (None, endpoint) else self._first_that_prefers(endpoint, first)
            call = self._waiting.pop(at)
            call.forget_preference()
            call.turn.set_result(self._assign(endpoint, call.blocks))
        if self._waiting:
            self._wake_when_available(self._loop.time())

    def _first_that_prefers(self, endpoint: Endpoint, first: int) -> int:
        """Return the position of the call to serve: of one behind the first, if that prefers the server."""
        last = self._waiting[first].number + OVERTAKING
        for at in range(first + 1, len(self._waiting)):
            call = self._waiting[at]
            if call.number > last:
                break
            if call.preferred is endpoint and not call.turn.done():
                return at
        return first

    def _wake_when_available(self, now: float) -> None:
        """Schedule the service of waiting calls for the time when the first server becomes available.

        now: the time at which no server was available. One that became available since then counts too: nothing else
        might ever serve the calls.
        """
        up = [endpoint for endpoint in self.endpoints if endpoint.up]
        first = min(up, key=lambda endpoint: endpoint.held_until, default=None)
        if first is not None and first.held_until - now > self._max_retry_after:
            self.fail_all(
                f"{first.url} asks to wait {first.held_until - now:.0f} s before the next request, more than "
                f"engine.max_retry_after={self._max_retry_after:g}; is a quota used up?"
            )
        held = [endpoint.available_at for endpoint in up if endpoint.available_at > now]
        if self._wake_up is not None:
            self._wake_up.cancel()
        if held:  # otherwise the next release serves them
            self._wake_up = self._loop.call_at(min(held), self._serve_waiting)

    # --- outages ---

    def _mark_up(self, endpoint: Endpoint) -> None:
        if endpoint.warning_timer is not None:
            endpoint.warning_timer.cancel()
        if endpoint.warned and endpoint.down_since is not None:
            log.warning("%s answers again, after %s", endpoint.url, time_span(self._loop.time() - endpoint.down_since))
        endpoint.down_since, endpoint.warning_timer, endpoint.warned = None, None, False
        endpoint.cause, endpoint.last_assigned = "", self._loop.time()
        if self._outage_ends is not None:
            self._outage_ends.cancel()
            self._outage_ends = None
        self._serve_waiting()

    def warn_of_outage(self, endpoint: Endpoint) -> None:
        """Warn the user that a server is down, once."""
        if endpoint.warned:
            return
        endpoint.warned = True
        if not all(other.cause for other in self.endpoints):
            log.warning("%s; going on with the other servers", endpoint.cause)
        else:
            span = time_span(self._max_outage)
            log.warning("no server answers (%s); calls wait for up to %s (engine.max_outage)", endpoint.cause, span)

    def _end_outage(self) -> None:
        causes = "; ".join(endpoint.cause for endpoint in self.endpoints)
        self.fail_all(f"{causes}; nothing was answered for {time_span(self._max_outage)} (engine.max_outage)")

    def fail_all(self, reason: str) -> None:
        """End all waiting and future calls with EngineError."""
        self._failure = reason
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.turn.done():
                call.turn.set_exception(EngineError(reason))


def _within(factor: float, expected: Mapping[Endpoint, float]) -> list[Endpoint]:
    """Return the servers whose expected time is at most a multiple of the shortest."""
    longest = factor * min(expected.values(), default=0.0)
    return [endpoint for endpoint, seconds in expected.items() if seconds <= longest]

"""Sends each request until a server answers it: attempts, waits, probes, and refusal of a request at fault."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from evorun.errors import EngineError
from evorun.models.base import CONTROL, Wasted
from evorun.models.server.deadlines import Deadlines
from evorun.models.server.endpoint import Endpoint
from evorun.models.server.http import (
    MALFORMED,
    NO_CONNECTION,
    TIMED_OUT,
    Answer,
    Failure,
    HttpTransport,
)
from evorun.models.server.pool import EndpointPool
from evorun.models.server.retry import MAX_LIMITED, FailureRate, RetryPolicy, parse_retry_after
from evorun.models.server.wire import BYTES_PER_TOKEN, CHAT, ChatResponse, decode_response, spent_tokens
from evorun.models.urls import without_credentials

log = logging.getLogger(__name__)

FAILED_PROBES_BEFORE_DOWN = 3
"""Consecutive failed probes after which a server counts as down. `ours`: one may fail by chance."""
MAX_PROBE_INTERVAL = 15.0
"""Maximum seconds between two probes; they start with the interval of retries. `ours`."""

# Timeouts, conflicts, "too early" and rate limits are temporary; so are all 5xx.
_RETRIED = frozenset({408, 409, 425, 429})
# Prompt longer than the context, content filter, invalid schema: other requests may still be served.
_ABOUT_THIS_REQUEST = frozenset({400, 413, 422})


class Refusal(msgspec.Struct, frozen=True):
    """The outcome of a request that gets no answer although the servers work."""

    reason: str


@dataclass
class Call:
    """A call to the engine: one request, or several where servers give too few completions at once."""

    number: int
    """In order of arrival."""
    probe: Callable[[int], bytes]
    """Returns the body of a request with the same settings and a harmless text, which differs by number."""
    max_tokens: int
    """Maximum completion tokens of a request."""
    endpoint: str
    """CHAT or TOKENS."""
    seconds: float = 0.0
    """Time that servers spent on it."""
    wasted: dict[str, Wasted] = field(default_factory=dict)

    def record_wasted(self, kind: str, tokens: int) -> None:
        """Count an attempt that gave no answer to the request."""
        self.wasted[kind] = self.wasted.get(kind, Wasted()) + Wasted(1, tokens)


class Dispatcher:
    """Sends requests to the servers of one model, a bounded number at once."""

    def __init__(
        self,
        http: HttpTransport,
        pool: EndpointPool,
        policy: RetryPolicy,
        timeout: float,
        advice: dict[int, str],
        before_probe: Callable[[Endpoint], Awaitable[None]] | None = None,
    ) -> None:
        """timeout: maximum seconds per attempt. advice: by HTTP status, for those that every request would get.

        before_probe: prepares a server that may have restarted.
        """
        self.http = http
        self.pool = pool
        self._policy = policy
        self._deadlines = Deadlines(timeout)
        self._advice = advice
        self._before_probe = before_probe
        self._call_numbers = itertools.count()
        self._probe_numbers = itertools.count(1)
        self._unreported_probes: dict[str, Wasted] = {}
        """Cost of probes that no call has reported yet."""
        self._failures = FailureRate()
        self._has_answered = False

    def close(self) -> None:
        """Stop probing, and end all calls with EngineError."""
        self.pool.close("the server engine was closed while a request was under way; open it again")
        self._deadlines.close()

    def new_call(self, probe: Callable[[int], bytes], max_tokens: int, endpoint: str = CHAT) -> Call:
        """Return a call that ranks after all earlier ones."""
        return Call(next(self._call_numbers), probe, max_tokens, endpoint)

    async def send(self, body: bytes, call: Call) -> ChatResponse | Refusal:
        """Send `body` until a server gives a usable answer.

        A request that keeps failing while its servers answer others is refused: it would end every repetition of the
        run. While no server answers anything, it waits. Raises EngineError after `max_outage`, and for an answer that
        every request would get.
        """
        if self.pool.any_down:
            for down in self.pool.endpoints:
                if not down.up:
                    self._start_probing(down, call)
        endpoint: Endpoint | None = None
        attempts = own_failures = limited = timeouts = 0
        counted = False
        others = self.pool.answers
        while True:
            # The next attempt goes to another server, if there is one.
            endpoint = await self.pool.acquire(call.number, endpoint, body)
            answers = endpoint.answers
            try:
                outcome = await self._attempt(endpoint, body, call, timeouts)
            finally:  # also when cancelled: the count would never go down again
                self.pool.release(endpoint)
            attempts += 1
            if not isinstance(outcome, Failure):
                if not counted:
                    self._failures.add(failed=False)
                break
            if outcome.hopeless and not self._has_answered:
                raise EngineError(f"{endpoint.url}: {outcome.cause}; {outcome.advice}")
            log.info("%s: attempt %d failed: %s", endpoint.url, attempts, outcome.cause)
            timeouts += outcome.kind == TIMED_OUT
            if outcome.limited and limited < MAX_LIMITED:
                limited += self.pool.answers > others
                others = self.pool.answers
            elif endpoint.failures == 1 and not own_failures and endpoint.answers == answers:
                pass  # usually chance, and not worth a probe
            elif not await self._still_answers_others(endpoint, answers, call):
                own_failures = 0
            elif outcome.kind != NO_CONNECTION:  # no request can be at fault where none has arrived
                own_failures += 1
                if not counted:
                    self._failures.add(failed=True)
                counted = True
            if own_failures >= self._failures.failures_of_own(self._policy.max_retries):
                failed = f"{attempts} attempts of a request failed"
                outcome = Refusal(f"{failed} while others were answered, the last with: {outcome.cause}")
                break
            await asyncio.sleep(self._wait_before_retry(endpoint, outcome, max(own_failures, limited) - 1))
        for kind, wasted in self._unreported_probes.items():
            call.wasted[kind] = call.wasted.get(kind, Wasted()) + wasted
        self._unreported_probes.clear()
        return outcome

    async def _attempt(
        self, endpoint: Endpoint, body: bytes, call: Call, timeouts: int
    ) -> ChatResponse | Refusal | Failure:
        """Send `body` to a server once. timeouts: its earlier attempts that timed out."""
        loop = asyncio.get_running_loop()
        started, load = loop.time(), endpoint.in_flight
        number = endpoint.count_request(started)
        outcome: ChatResponse | Refusal | Failure
        try:
            async with asyncio.timeout(None) as ends:
                attempt = self._deadlines.begin(call.max_tokens, ends, timeouts)
                answer = await self.http.post(f"{endpoint.url}/{call.endpoint}", body)
            outcome = self.interpret(answer, body) if isinstance(answer, Answer) else answer
        except TimeoutError:
            cause = f"no complete answer within {loop.time() - started:.3g} s"
            outcome = Failure(kind=TIMED_OUT, cause=cause, tokens=len(body) // BYTES_PER_TOKEN)
        finally:
            call.seconds += loop.time() - started
            self._deadlines.end(call.max_tokens, attempt)
        if isinstance(outcome, Failure):
            endpoint.failures += not outcome.limited
            endpoint.admitted += not outcome.limited
            if outcome.limited:
                self.pool.record_rate_limit(endpoint, number, outcome.retry_after)
            # Estimated from the bytes of whatever came, which may be no tokens at all.
            call.record_wasted(outcome.kind, min(outcome.tokens, len(body) // BYTES_PER_TOKEN + call.max_tokens))
        else:
            seconds = loop.time() - started
            self._deadlines.learn(call.max_tokens, seconds)
            self._has_answered |= isinstance(outcome, ChatResponse)
            self.pool.record_answer(endpoint, load, seconds)
        return outcome

    async def _still_answers_others(self, endpoint: Endpoint, answers: int, call: Call) -> bool:
        """Wait until a server that has just failed a request answers another or goes down; return whether it is up.

        answers: the server's answers when the attempt began. Where no other request is in flight, as at the end of a
        run, probes replace the others.
        """
        while endpoint.up and endpoint.answers == answers:
            self._start_probing(endpoint, call)
            await endpoint.wait_for_change()
        return endpoint.up

    def _start_probing(self, endpoint: Endpoint, call: Call) -> None:
        if endpoint.probing is None:
            endpoint.probing = asyncio.create_task(self._probe(endpoint, call))

    async def _probe(self, endpoint: Endpoint, call: Call) -> None:
        """Send probes of a call to a server until it answers one, or any other request."""
        answers, failed = endpoint.answers, 0
        probing = Call(call.number, call.probe, call.max_tokens, call.endpoint, wasted=self._unreported_probes)
        try:
            if endpoint.in_flight:  # which may be answered soon
                await asyncio.sleep(min(2 * endpoint.latency, MAX_PROBE_INTERVAL))
            while endpoint.answers == answers:
                if self._before_probe is not None:
                    await self._before_probe(endpoint)
                outcome = await self._attempt(endpoint, probing.probe(next(self._probe_numbers)), probing, 0)
                if isinstance(outcome, ChatResponse):
                    usage = outcome.usage
                    tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if usage else 0
                    probing.record_wasted(CONTROL, tokens)
                    return
                if isinstance(outcome, Failure) and outcome.hopeless and not self._has_answered:
                    self.pool.fail_all(f"{endpoint.url}: {outcome.cause}; {outcome.advice}")
                    return
                if isinstance(outcome, Failure) and not outcome.limited:
                    failed += 1
                    if failed >= FAILED_PROBES_BEFORE_DOWN:
                        self.pool.mark_down(endpoint, f"{outcome.cause}; {outcome.advice}")
                await asyncio.sleep(min(self._policy.backoff_base * 2.0 ** min(failed, 60), MAX_PROBE_INTERVAL))
        finally:
            endpoint.probing = None
            endpoint.notify()

    def _wait_before_retry(self, endpoint: Endpoint, failure: Failure, retry: int) -> float:
        """Return the seconds that this call waits before its next attempt."""
        seconds = failure.retry_after
        # A single Retry-After of hours may be an error; a repeated one ends the run, in the pool.
        believed = seconds is not None and seconds <= self._policy.max_retry_after
        if seconds is None or not believed or self.pool.has_alternative(endpoint):
            return self._policy.backoff(max(retry, 0), endpoint.latency)
        return seconds + self._policy.backoff(0)

    def interpret(self, answer: Answer, body: bytes = b"") -> ChatResponse | Refusal | Failure:
        """Classify the HTTP answer to a request with this body."""
        status = answer.status
        if 200 <= status < 300:
            try:
                return decode_response(answer.content)
            except ValueError as exc:
                tokens = spent_tokens(answer.content, body)
                cause = f"malformed answer, {exc}: {self.http.message(answer)}"
                return Failure(kind=MALFORMED, cause=self.http.redactor.message(cause), tokens=tokens)
        kind, cause = f"http_{status}", f"HTTP {status}: {self.http.message(answer)}"
        if status in _ABOUT_THIS_REQUEST:
            return Refusal(cause)
        if status in _RETRIED or status >= 500:
            retry_after = parse_retry_after(answer.headers)
            limited = status == 429 or retry_after is not None
            return Failure(kind=kind, cause=cause, limited=limited, retry_after=retry_after)
        if 300 <= status < 400:
            target = without_credentials(unquote(answer.headers.get("Location", "")))
            cause = (
                f"HTTP {status} redirects to '{self.http.redactor.message(target)}', which evorun does not follow "
                "because the API key would go there"
            )
            return Failure(kind=kind, cause=cause, advice="if it is right, put it in engine.base_urls", hopeless=True)
        advice = self._advice.get(status, "check engine.base_urls and engine.extra_body")
        return Failure(kind=kind, cause=cause, advice=advice, hopeless=True)

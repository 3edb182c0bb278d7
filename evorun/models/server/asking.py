"""One request asked until a server answers it: attempts, waits, and the verdict when none succeeds."""

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
from evorun.models.server.http import (
    MALFORMED,
    NO_CONNECTION,
    TIMED_OUT,
    Answer,
    Failure,
    HttpTransport,
    without_credentials,
)
from evorun.models.server.pool import Endpoint, EndpointPool
from evorun.models.server.retry import MAX_LIMITED, FailureRate, Patience, parse_retry_after
from evorun.models.server.wire import BYTES_PER_TOKEN, CHAT, ChatResponse, decode_response, spent_tokens

log = logging.getLogger(__name__)

CONTROLS_BEFORE_DROPPED = 3
"""Controls in a row that fail before a server is given no more calls. `ours`: one may fail by chance."""
LAST_PROBE = 15.0
"""Seconds between two controls at most; at first as long as between attempts. `ours`."""

# Timeouts, conflicts, "too early" and rate limits pass; so do all 5xx.
_RETRIED = frozenset({408, 409, 425, 429})
# Prompt longer than the context, content filter, invalid schema: other requests may still be served.
_ABOUT_THIS_REQUEST = frozenset({400, 413, 422})


class Refusal(msgspec.Struct, frozen=True):
    """One request that is not answered, while the servers work."""

    reason: str


@dataclass
class Call:
    """A call to the engine: one request, or several where servers give too few completions at once."""

    number: int
    """In the order of arrival."""
    control: Callable[[int], bytes]
    """Gives the body of a request in which only the settings can be wrong, not the texts; others by their number."""
    max_tokens: int
    """Completion tokens that a request may take."""
    endpoint: str
    """CHAT or TOKENS."""
    seconds: float = 0.0
    """Time that a server was busy with it."""
    wasted: dict[str, Wasted] = field(default_factory=dict)

    def waste(self, kind: str, tokens: int) -> None:
        """Count an attempt that gave no answer to the request."""
        self.wasted[kind] = self.wasted.get(kind, Wasted()) + Wasted(1, tokens)


class Asker:
    """Asks the servers of one model, a bounded number of requests at once."""

    def __init__(
        self,
        http: HttpTransport,
        pool: EndpointPool,
        patience: Patience,
        timeout: float,
        advice: dict[int, str],
        before_control: Callable[[Endpoint], Awaitable[None]] | None = None,
    ) -> None:
        """timeout: seconds that an attempt may take at most. advice: for statuses that every request would get.

        before_control: makes ready a server that may have been started anew.
        """
        self.http = http
        self.pool = pool
        self._patience = patience
        self._deadlines = Deadlines(timeout)
        self._advice = advice
        self._before_control = before_control
        self._numbers = itertools.count()
        self._controls = itertools.count(1)
        self._unclaimed: dict[str, Wasted] = {}
        """Controls that no call has told of yet."""
        self._failures = FailureRate()
        self._has_answered = False

    def close(self) -> None:
        """Stop probing, and end all calls with EngineError."""
        self.pool.close("the server engine was closed while a request was under way; open it again")
        self._deadlines.close()

    def call(self, control: Callable[[int], bytes], max_tokens: int, endpoint: str = CHAT) -> Call:
        """Return a call, which comes after all earlier ones."""
        return Call(next(self._numbers), control, max_tokens, endpoint)

    async def ask(self, body: bytes, call: Call) -> ChatResponse | Refusal:
        """Send `body` until a server gives a usable answer.

        A request that fails by itself, again and again, while its servers answer others, is refused: it would end
        every repetition of the run. While nothing is answered it waits. Raises EngineError after `max_outage`, and
        for an answer that every request would get.
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
            # A failing server does not hold up the request: the next attempt goes to another one, if there is one.
            endpoint = await self.pool.take(call.number, endpoint)
            answers = endpoint.answers
            try:
                outcome = await self._attempt(endpoint, body, call, timeouts)
            finally:  # also when cancelled: the count would never go down again
                self.pool.give_back(endpoint)
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
                pass  # chance, as a rule, and not worth a control
            elif not await self._answers_others(endpoint, answers, call):
                own_failures = 0
            elif outcome.kind != NO_CONNECTION:  # no request can be at fault where none has arrived
                own_failures += 1
                if not counted:
                    self._failures.add(failed=True)
                counted = True
            if own_failures >= self._failures.failures_of_own(self._patience.max_retries):
                failed = f"{attempts} attempts of a request failed"
                outcome = Refusal(f"{failed} while others were answered, the last with: {outcome.cause}")
                break
            await asyncio.sleep(self._seconds_before_next(endpoint, outcome, max(own_failures, limited) - 1))
        for kind, wasted in self._unclaimed.items():
            call.wasted[kind] = call.wasted.get(kind, Wasted()) + wasted
        self._unclaimed.clear()
        return outcome

    async def _attempt(
        self, endpoint: Endpoint, body: bytes, call: Call, timeouts: int
    ) -> ChatResponse | Refusal | Failure:
        """Send `body` to a server once. timeouts: attempts that have taken too long so far."""
        loop = asyncio.get_running_loop()
        started, load = loop.time(), endpoint.in_flight
        number = endpoint.count_request(started)
        outcome: ChatResponse | Refusal | Failure
        try:
            async with asyncio.timeout(None) as ends:
                attempt = self._deadlines.begin(call.max_tokens, ends, timeouts)
                answer = await self.http.post(f"{endpoint.url}/{call.endpoint}", body)
            outcome = self.read(answer, body) if isinstance(answer, Answer) else answer
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
                self.pool.limited(endpoint, number, outcome.retry_after)
            # Estimated from the bytes of whatever came, which may be no tokens at all.
            call.waste(outcome.kind, min(outcome.tokens, len(body) // BYTES_PER_TOKEN + call.max_tokens))
        else:
            seconds = loop.time() - started
            self._deadlines.learn(call.max_tokens, seconds)
            self._has_answered |= isinstance(outcome, ChatResponse)
            self.pool.answered(endpoint, load, seconds)
        return outcome

    async def _answers_others(self, endpoint: Endpoint, answers: int, call: Call) -> bool:
        """Tell whether a server that has just failed a request answers others, waiting until that is known.

        answers: of the server when the attempt began. Nothing else may be asked just now, as at the end of a run: then
        controls stand for the others.
        """
        while endpoint.up and endpoint.answers == answers:
            self._start_probing(endpoint, call)
            await endpoint.news()
        return endpoint.up

    def _start_probing(self, endpoint: Endpoint, call: Call) -> None:
        if endpoint.prober is None:
            endpoint.prober = asyncio.create_task(self._probe(endpoint, call))

    async def _probe(self, endpoint: Endpoint, call: Call) -> None:
        """Send a server controls of a call, until it answers one, or anything else."""
        answers, failed = endpoint.answers, 0
        control = Call(call.number, call.control, call.max_tokens, call.endpoint, wasted=self._unclaimed)
        try:
            if endpoint.in_flight:  # which may be answered soon
                await asyncio.sleep(min(2 * endpoint.latency, LAST_PROBE))
            while endpoint.answers == answers:
                if self._before_control is not None:
                    await self._before_control(endpoint)
                outcome = await self._attempt(endpoint, control.control(next(self._controls)), control, 0)
                if isinstance(outcome, ChatResponse):
                    usage = outcome.usage
                    control.waste(CONTROL, (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if usage else 0)
                    return
                if isinstance(outcome, Failure) and outcome.hopeless and not self._has_answered:
                    self.pool.fail(f"{endpoint.url}: {outcome.cause}; {outcome.advice}")
                    return
                if isinstance(outcome, Failure) and not outcome.limited:
                    failed += 1
                    if failed >= CONTROLS_BEFORE_DROPPED:
                        self.pool.drop(endpoint, f"{outcome.cause}; {outcome.advice}")
                await asyncio.sleep(min(self._patience.backoff_base * 2.0 ** min(failed, 60), LAST_PROBE))
        finally:
            endpoint.prober = None
            endpoint.tell()

    def _seconds_before_next(self, endpoint: Endpoint, failure: Failure, retry: int) -> float:
        """Return the seconds that this call waits, whatever the others do."""
        seconds = failure.retry_after
        # A wait of hours is believed only once it comes again and again, and then ends the run.
        believed = seconds is not None and seconds <= self._patience.max_retry_after
        if seconds is None or not believed or self.pool.has_another(endpoint):
            return self._patience.backoff(max(retry, 0), endpoint.latency)
        return seconds + self._patience.backoff(0)

    def read(self, answer: Answer, body: bytes = b"") -> ChatResponse | Refusal | Failure:
        """Return what an HTTP answer to a request with this body says."""
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

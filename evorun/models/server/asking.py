"""One request asked until a server answers it: slots, attempts, waits, and the verdict when none succeeds."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from evorun.errors import EngineError
from evorun.models.base import CONTROL, Wasted
from evorun.models.server.http import MALFORMED, NO_CONNECTION, Answer, Failure, HttpTransport, without_credentials
from evorun.models.server.retry import Attempts, Endpoint, EndpointPool, Patience, parse_retry_after
from evorun.models.server.slots import Slots
from evorun.models.server.wire import BYTES_PER_TOKEN, CHAT, ChatResponse, decode_response, spent_tokens

log = logging.getLogger(__name__)

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
    most_tokens: int
    """Completion tokens that a request may take."""
    endpoint: str
    """CHAT or TOKENS."""
    controls: int = 0
    """Control requests so far."""
    seconds: float = 0.0
    """Time in slots."""
    wasted: dict[str, Wasted] = field(default_factory=dict)

    def waste(self, kind: str, tokens: int) -> None:
        """Count an attempt that gave no answer to the request."""
        self.wasted[kind] = self.wasted.get(kind, Wasted()) + Wasted(1, tokens)


class Asker:
    """Asks the servers of one model, a bounded number of requests at once."""

    def __init__(
        self, http: HttpTransport, pool: EndpointPool, patience: Patience, slots: Slots, advice: dict[int, str]
    ) -> None:
        """advice: for statuses that every request would get."""
        self.http = http
        self.pool = pool
        self._patience = patience
        self._slots = slots
        self._advice = advice
        self._numbers = itertools.count()

    def call(self, control: Callable[[int], bytes], most_tokens: int, endpoint: str = CHAT) -> Call:
        """Return a call, which comes after all earlier ones."""
        return Call(next(self._numbers), control, most_tokens, endpoint)

    async def ask(self, body: bytes, call: Call) -> ChatResponse | Refusal:
        """Send `body` until a server gives a usable answer.

        A request that fails alone, again and again, while others are answered, is refused: it would end every
        repetition of the run. Raises EngineError when nothing is answered.
        """
        attempts = Attempts(self.pool)
        endpoint: Endpoint | None = None
        while True:
            # A failing server does not hold up the request: the next attempt goes to another one, if there is one.
            endpoint, outcome = await self._attempt(body, call, endpoint)
            if not isinstance(outcome, Failure):
                return outcome
            attempts.add(outcome)
            if outcome.hopeless and not self.pool.answers:
                raise EngineError(f"{endpoint.url}: {outcome.cause}; {outcome.advice}")
            if attempts.exhausted(self._patience.max_retries):
                failed = f"{attempts.failed} attempts of a request failed"
                if attempts.failed_alone:
                    return Refusal(f"{failed} while others were answered, the last with: {outcome.cause}")
                # Nothing else may be asked just now, as at the end of a run: then a control stands for the others.
                out_of_reach = outcome.kind == NO_CONNECTION and not self.pool.has_another(endpoint)
                if out_of_reach or not await self._answers_control(call):
                    raise EngineError(
                        f"{endpoint.url} unreachable: {failed}, the last with: {outcome.cause}; {outcome.advice}"
                    )
            log.info("%s: attempt %d failed: %s", endpoint.url, attempts.failed, outcome.cause)
            await asyncio.sleep(self._seconds_before_next(endpoint, outcome, attempts.failed - 1))

    async def _answers_control(self, call: Call) -> bool:
        """Return whether a control request is answered, in as many attempts as any request has."""
        for retry in range(self._patience.max_retries + 1):
            call.controls += 1
            _, outcome = await self._attempt(call.control(call.controls), call, None)
            if isinstance(outcome, ChatResponse):
                usage = outcome.usage
                call.waste(CONTROL, (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if usage else 0)
                return True
            await asyncio.sleep(self._patience.backoff(retry))
        return False

    async def _attempt(
        self, body: bytes, call: Call, last: Endpoint | None
    ) -> tuple[Endpoint, ChatResponse | Refusal | Failure]:
        """Send `body` once, to another server than the last if one is free. Raises EngineError as `_next_endpoint`."""
        async with self._slots.hold(call.number):
            endpoint = await self._next_endpoint(last)
            endpoint.outstanding += 1
            endpoint.started += 1
            started = asyncio.get_running_loop().time()
            try:
                answer = await self.http.post(f"{endpoint.url}/{call.endpoint}", body)
            finally:  # also when cancelled: the count would never go down again
                endpoint.outstanding -= 1
                call.seconds += asyncio.get_running_loop().time() - started
        outcome = self.read(answer, body) if isinstance(answer, Answer) else answer
        if isinstance(outcome, Failure):
            self.pool.failed(endpoint, outcome.retry_after)
            # Estimated from the bytes of whatever came, which may be no tokens at all.
            call.waste(outcome.kind, min(outcome.tokens, len(body) // BYTES_PER_TOKEN + call.most_tokens))
        else:
            self.pool.succeeded(endpoint)
            self.pool.answers += isinstance(outcome, ChatResponse)
        return endpoint, outcome

    async def _next_endpoint(self, last: Endpoint | None) -> Endpoint:
        """Pick a server, waiting while every one is held by its Retry-After.

        Raises EngineError when the engine has been closed or the wait is longer than `max_retry_after`.
        """
        while True:
            if self.http.closed:
                raise EngineError("the server engine was closed while a request was under way; open it again")
            endpoint = self.pool.pick(last)
            seconds = self.pool.hold_seconds(endpoint)
            if seconds <= 0:
                return endpoint
            if seconds > self._patience.max_retry_after:
                raise EngineError(
                    f"{endpoint.url} asks to wait {seconds:.0f} s before the next request, more than "
                    f"engine.max_retry_after={self._patience.max_retry_after:g}; is a quota used up?"
                )
            # Jitter, or all waiting requests would arrive in the same instant.
            await asyncio.sleep(seconds + self._patience.backoff(0))

    def _seconds_before_next(self, endpoint: Endpoint, failure: Failure, retry: int) -> float:
        """Return the seconds that this call waits, whatever the others do."""
        seconds = failure.retry_after
        # A wait of hours is believed only once it comes again and again, and then ends the run.
        believed = seconds is not None and seconds <= self._patience.max_retry_after
        if seconds is None or not believed or self.pool.has_another(endpoint):
            return self._patience.backoff(retry)
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
            return Failure(kind=kind, cause=cause, retry_after=parse_retry_after(answer.headers))
        if 300 <= status < 400:
            target = without_credentials(unquote(answer.headers.get("Location", "")))
            cause = (
                f"HTTP {status} redirects to '{self.http.redactor.message(target)}', which evorun does not follow "
                "because the API key would go there"
            )
            return Failure(kind=kind, cause=cause, advice="if it is right, put it in engine.base_urls", hopeless=True)
        advice = self._advice.get(status, "check engine.base_urls and engine.extra_body")
        return Failure(kind=kind, cause=cause, advice=advice, hopeless=True)

"""Retries of the server engine in virtual time: who is at fault, who waits, and what it cost."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from fault_server import TokenBucket
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import EngineError
from evorun.models.base import CONTROL, Wasted
from evorun.models.server.asking import Asker, Call, Refusal
from evorun.models.server.http import NO_CONNECTION, Answer, Failure
from evorun.models.server.messages import Redactor, error_text
from evorun.models.server.retry import LIMITS_BEFORE_HELD, MOST_LIMITED, EndpointPool, Patience, parse_retry_after
from evorun.models.server.slots import Slots
from evorun.models.server.wire import ChatResponse
from virtual_time import run_virtually

GOOD = Answer(200, {}, b'{"choices": [{"message": {"content": "fine"}}]}')
LIMITED = Answer(429, {"Retry-After": "1"}, b"{}")
CONTROLS = {b"control %d" % number for number in range(100)}
DEFAULTS = Patience(max_retries=8, backoff_base=0.5, backoff_cap=30.0, max_retry_after=300.0)

Server = Callable[[bytes], Answer | Failure]
Outcome = ChatResponse | Refusal | EngineError


def status(code: int) -> Answer:
    return Answer(code, {}, b'{"error": {"message": "made to fail"}}')


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def seconds() -> float:
    """Return the virtual time since the beginning."""
    return asyncio.get_running_loop().time()


class Transport:
    """Answers as a function of the body does, after a latency; keeps the bodies."""

    def __init__(self, server: Server, latency: float) -> None:
        self.server = server
        self.latency = latency
        self.seen: list[bytes] = []
        self.dead: tuple[str, ...] = ()
        """URLs out of reach."""
        self.redactor = Redactor()
        self.closed = False

    async def post(self, url: str, body: bytes) -> Answer | Failure:
        self.seen.append(body)
        out_of_reach = Failure(kind=NO_CONNECTION, cause="refused")
        answer = out_of_reach if url.startswith(self.dead) else self.server(body)
        await asyncio.sleep(self.latency)
        return answer

    def message(self, answer: Answer) -> str:
        return self.redactor.message(error_text(answer.content))


class World:
    """An asker and what it sends."""

    def __init__(self, server: Server, *, slots: int = 64, latency: float = 0.1, servers: int = 1) -> None:
        self.transport: Any = Transport(server, latency)
        pool = EndpointPool([f"http://{number}/v1" for number in range(servers)], seconds)
        self.asker = Asker(self.transport, pool, DEFAULTS, Slots(slots), {404: "check model.id"})

    async def ask(self, body: bytes) -> tuple[Outcome, Call]:
        call = self.asker.call(lambda number: b"control %d" % number, 1_000)
        try:
            return await self.asker.ask(body, call), call
        except EngineError as error:
            return error, call

    async def ask_all(self, bodies: Sequence[bytes]) -> dict[bytes, tuple[Outcome, Call]]:
        outcomes = await asyncio.gather(*map(self.ask, bodies))
        return dict(zip(bodies, outcomes, strict=True))

    @property
    def controls(self) -> list[bytes]:
        """Control requests sent."""
        return [body for body in self.transport.seen if body in CONTROLS]


def virtually(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a test in virtual time, with the same jitter each time."""

    async def run() -> None:
        await scenario()

    random.seed(11)
    run_virtually(run())


def fails(*bodies: bytes, code: int = 500) -> Server:
    return lambda body: status(code) if body in bodies else GOOD


# --- who is at fault ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [301, 401, 403, 404, 500])
def test_a_request_that_fails_alone_while_others_are_answered_is_refused(code: int) -> None:
    async def scenario() -> None:
        world = World(fails(b"7", code=code), slots=4, latency=1.0)
        ended = await world.ask_all(numbered(500))
        outcome, call = ended.pop(b"7")
        assert isinstance(outcome, Refusal)
        assert (
            f"9 attempts of a request failed while others were answered, the last with: HTTP {code}" in outcome.reason
        )
        assert call.wasted == {f"http_{code}": Wasted(9, 0)}
        assert world.controls == []
        assert all(isinstance(other, ChatResponse) for other, _ in ended.values())

    virtually(scenario)


def test_where_nothing_else_is_asked_a_control_stands_for_the_others() -> None:
    async def scenario() -> None:
        world = World(fails(b"bad", b"control 2"))  # a control may be one of those that fail
        outcome, call = await world.ask(b"bad")
        assert isinstance(outcome, Refusal)
        assert len(set(world.controls)) == len(world.controls) == 4
        assert call.wasted == {"http_500": Wasted(9 + 3 + 1), CONTROL: Wasted(3)}

    virtually(scenario)


@pytest.mark.parametrize("answer", [status(500), status(401), Failure(kind="timed_out", cause="silence")])
def test_servers_that_answer_nothing_are_at_fault_and_not_the_request(answer: Answer | Failure) -> None:
    async def scenario() -> None:
        world = World(lambda body: GOOD if seconds() < 10 else answer, slots=4)
        ended = await world.ask_all(numbered(500))
        outcomes = Counter(type(outcome) for outcome, _ in ended.values())
        assert outcomes.keys() == {ChatResponse, EngineError}
        assert len(world.controls) == 9 * outcomes[EngineError]

    virtually(scenario)


def test_a_server_out_of_reach_is_not_asked_for_a_control() -> None:
    async def scenario() -> None:
        world = World(lambda body: Failure(kind=NO_CONNECTION, cause="refused"))
        outcome, _ = await world.ask(b"any")
        assert isinstance(outcome, EngineError)
        assert world.transport.seen == [b"any"] * 9

    virtually(scenario)


def test_one_server_out_of_reach_does_not_hide_a_request_that_fails_on_the_other() -> None:
    async def scenario() -> None:
        world = World(fails(b"7"), slots=4, latency=1.0, servers=2)
        world.transport.dead = ("http://0/",)
        ended = await world.ask_all(numbered(400))
        assert Counter(type(outcome) for outcome, _ in ended.values()) == {ChatResponse: 399, Refusal: 1}

    virtually(scenario)


def test_a_server_that_breaks_down_while_a_request_fails_is_at_fault_and_not_the_request() -> None:
    async def scenario() -> None:
        # The request has failed alone several times; its last attempts fail with all others.
        world = World(lambda body: GOOD if seconds() < 15 and body != b"7" else status(500), slots=4)
        ended = await world.ask_all(numbered(1_000))
        outcome, call = ended[b"7"]
        assert call.wasted["http_500"].attempts > 9
        assert isinstance(outcome, EngineError)

    virtually(scenario)


@pytest.mark.parametrize("down", [5, 20, 40, 60, 120])
def test_a_server_that_is_down_for_a_while_is_never_the_fault_of_a_request(down: int) -> None:
    async def scenario() -> None:
        world = World(lambda body: status(503) if 10 < seconds() < 10 + down else GOOD, slots=16, latency=1.0)
        ended = await world.ask_all(numbered(1_000))
        kinds = {type(outcome) for outcome, _ in ended.values()}
        assert Refusal not in kinds
        if down == 5:
            assert kinds == {ChatResponse}

    virtually(scenario)


def test_a_404_ends_the_run_at_its_beginning_only() -> None:
    async def scenario() -> None:
        outcome, _ = await World(lambda body: status(404)).ask(b"any")
        assert isinstance(outcome, EngineError)
        assert "check model.id" in str(outcome)
        faults = iter([GOOD, status(404), GOOD])
        world = World(lambda body: next(faults))
        for _ in range(2):
            outcome, _ = await world.ask(b"any")
            assert isinstance(outcome, ChatResponse)

    virtually(scenario)


def test_a_request_that_a_limit_never_admits_ends() -> None:
    async def scenario() -> None:
        world = World(
            lambda body: Answer(429, {}, b"too large for the limit") if body == b"7" else GOOD, slots=4, latency=5.0
        )
        ended = await world.ask_all(numbered(2_500))
        outcome, call = ended[b"7"]
        assert isinstance(outcome, Refusal)
        assert call.wasted["http_429"].attempts == MOST_LIMITED + 9

    virtually(scenario)


# --- who waits ----------------------------------------------------------------------------------------------------


def test_a_single_429_delays_its_own_call_alone() -> None:
    async def scenario() -> None:
        faults = iter([LIMITED])
        world = World(lambda body: next(faults, GOOD))
        first = asyncio.create_task(world.ask(b"limited"))
        await world.ask_all(numbered(60))
        assert seconds() == pytest.approx(0.1)
        await first
        assert 1.1 <= seconds() <= 1.8

    virtually(scenario)


def test_several_in_a_row_hold_all_calls() -> None:
    async def scenario() -> None:
        faults = iter([LIMITED] * LIMITS_BEFORE_HELD)
        world = World(lambda body: next(faults, GOOD))
        calls = asyncio.gather(*map(world.ask, numbered(LIMITS_BEFORE_HELD)))
        await asyncio.sleep(0.2)
        outcome, _ = await world.ask(b"later")
        assert isinstance(outcome, ChatResponse)
        assert seconds() >= 1.1
        await calls

    virtually(scenario)


@pytest.mark.parametrize(("rate", "reached"), [(10, 8.9), (30, 27.4)])
@pytest.mark.parametrize("dated", [False, True])
def test_a_token_bucket_is_used_to_the_full(rate: int, reached: float, dated: bool) -> None:
    """The rates are those that were reached when every 429 held all calls."""

    async def scenario() -> None:
        bucket = TokenBucket(rate, seconds)
        limited = LIMITED
        if dated:
            dates = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT", "Retry-After": "Sat, 01 Jan 2000 00:00:01 GMT"}
            limited = Answer(429, dates, b"{}")
        world = World(lambda body: GOOD if bucket.admits() else limited, latency=0.02)
        ended = await world.ask_all(numbered(1_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        # The bucket is full at the beginning.
        assert (1_000 - bucket.size) / seconds() >= reached

    virtually(scenario)


def test_random_429s_cost_about_what_they_cost_their_own_calls() -> None:
    async def scenario() -> None:
        rng = random.Random(5)
        world = World(lambda body: LIMITED if rng.random() < 0.015 else GOOD, latency=0.02)
        ended = await world.ask_all(numbered(2_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        assert seconds() < 4.0  # 0.63 s without; 30 s where each of them held all calls

    virtually(scenario)


def test_a_wait_of_hours_is_not_believed_the_first_time() -> None:
    async def scenario() -> None:
        faults = iter([Answer(429, {"Retry-After": "9" * 400}, b"{}")])
        outcome, _ = await World(lambda body: next(faults, GOOD)).ask(b"any")
        assert isinstance(outcome, ChatResponse)
        assert seconds() < 2

    virtually(scenario)


def test_a_call_that_waits_lends_its_slot_and_is_then_before_later_ones() -> None:
    async def scenario() -> None:
        faults = iter([LIMITED])
        world = World(lambda body: next(faults, GOOD), slots=1)
        await world.ask_all([b"limited", *numbered(100)])
        again = world.transport.seen.index(b"limited", 1)
        assert 8 <= again <= 18  # a second or so of 0.1 s each, not the end of the queue

    virtually(scenario)


def test_seconds_are_those_in_a_slot() -> None:
    async def scenario() -> None:
        faults = iter([status(500)])
        world = World(lambda body: next(faults, GOOD), slots=1)
        ended = await world.ask_all(numbered(50))
        spent = [call.seconds for _, call in ended.values()]
        assert spent == [pytest.approx(0.2), *[pytest.approx(0.1)] * 49]

    virtually(scenario)


async def test_a_slot_is_not_lost_with_a_cancelled_call() -> None:
    slots = Slots(1)
    entered: list[int] = []

    async def work(number: int) -> None:
        async with slots.hold(number):
            entered.append(number)

    async with slots.hold(0):
        waiting = [asyncio.create_task(work(number)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # while it waits
        await asyncio.sleep(0)
    waiting[1].cancel()  # when its turn has just come
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting, return_exceptions=True)
        await work(4)
    assert entered == [3, 4]


# --- hostile headers ----------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_header_raises(retry_after: str, date: str) -> None:
    found = parse_retry_after({"Retry-After": retry_after, "Date": date})
    assert found is None or found >= 0


@pytest.mark.parametrize("zone", ["+9999", "-9999", "+" + "9" * 14, "-" + "9" * 5_000])
@pytest.mark.parametrize("year", ["1", "9999", "9" * 11])
def test_dates_out_of_range_are_no_dates(year: str, zone: str) -> None:
    date = f"Sat, 01 Jan {year} 00:00:00 {zone}"
    found = parse_retry_after({"Retry-After": date, "Date": "Fri, 31 Dec 9999 23:59:59 -2359"})
    assert found is None or found >= 0


def test_tokens_of_attempts_in_vain_are_as_stated_or_estimated_within_what_was_asked_for() -> None:
    async def scenario() -> None:
        body = b"x" * 400
        counted = b'{"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}}'
        faults = iter(
            [
                status(500),
                Answer(200, {}, counted),
                Answer(200, {}, b"y" * 200),
                Answer(200, {}, b"y" * 10_000_000),
                Failure(kind="timed_out", cause="silence", tokens=100),
            ]
        )
        _, call = await World(lambda body: next(faults, GOOD)).ask(body)
        assert call.wasted == {
            "http_500": Wasted(1, 0),
            "malformed": Wasted(3, (30 + 12) + (400 + 200) // 4 + (400 // 4 + 1_000)),
            "timed_out": Wasted(1, 100),
        }

    virtually(scenario)

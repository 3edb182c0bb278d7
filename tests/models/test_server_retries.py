"""Retries of the server engine in virtual time: who is at fault, who waits, and what it cost."""

import asyncio
import logging
import math
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from typing import Any

import pytest
from fault_server import FAULTS, TokenBucket
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import EngineError
from evorun.models.base import CONTROL, Wasted
from evorun.models.server.dispatcher import Call, Dispatcher, Refusal
from evorun.models.server.http import NO_CONNECTION, Answer, Failure
from evorun.models.server.messages import Redactor, error_text
from evorun.models.server.pool import RATE_LIMITS_BEFORE_HOLD, EndpointPool
from evorun.models.server.retry import MAX_LIMITED, FailureRate, RetryPolicy, parse_retry_after
from evorun.models.server.wire import ChatResponse
from virtual_time import VirtualLoop, run_virtually

GOOD = Answer(200, {}, b'{"choices": [{"message": {"content": "fine"}}]}')
UNREACHABLE = Failure(kind=NO_CONNECTION, cause="refused")
HANGS = Failure(kind="timed_out", cause="no answer ever comes")
LIMITED = Answer(429, {"Retry-After": "1"}, b"{}")
DEFAULTS = RetryPolicy(max_retries=8, backoff_base=0.25, backoff_cap=2.0, max_retry_after=300.0)
MAX_OUTAGE = 1_800.0

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

    def __init__(self, server: Server, latency: float, latency_of_failures: float | None = None) -> None:
        self.server = server
        self.latency = latency
        self.latency_of_failures = latency if latency_of_failures is None else latency_of_failures
        self.seen: list[bytes] = []
        self.dead: tuple[str, ...] = ()
        """URLs out of reach."""
        self.redactor = Redactor()
        self.closed = False

    async def post(self, url: str, body: bytes) -> Answer | Failure:
        self.seen.append(body)
        answer = UNREACHABLE if url.startswith(self.dead) else self.server(body)
        if answer is HANGS:
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency if answer is GOOD else self.latency_of_failures)
        return answer

    def message(self, answer: Answer) -> str:
        return self.redactor.message(error_text(answer.content))


class World:
    """An dispatcher and what it sends."""

    def __init__(
        self,
        server: Server,
        *,
        slots: int = 64,
        latency: float = 0.1,
        latency_of_failures: float | None = None,
        servers: int = 1,
    ) -> None:
        self.transport: Any = Transport(server, latency, latency_of_failures)
        urls = [f"http://{number}/v1" for number in range(servers)]
        pool = EndpointPool(urls, slots, MAX_OUTAGE, DEFAULTS.max_retry_after)
        self.dispatcher = Dispatcher(self.transport, pool, DEFAULTS, 600.0, {404: "check model.id"})

    async def ask(self, body: bytes) -> tuple[Outcome, Call]:
        call = self.dispatcher.new_call(lambda number: b"control %d" % number, 1_000)
        try:
            return await self.dispatcher.send(body, call), call
        except EngineError as error:
            return error, call

    async def ask_all(self, bodies: Sequence[bytes]) -> dict[bytes, tuple[Outcome, Call]]:
        outcomes = await asyncio.gather(*map(self.ask, bodies))
        return dict(zip(bodies, outcomes, strict=True))

    @property
    def controls(self) -> list[bytes]:
        """Control requests sent."""
        return [body for body in self.transport.seen if body.startswith(b"control")]


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
        assert "while others were answered, the last with: HTTP" in outcome.reason
        [(kind, wasted)] = call.wasted.items()
        assert kind == f"http_{code}"
        assert wasted.attempts in (4, 5)
        assert world.controls == []
        assert all(isinstance(other, ChatResponse) for other, _ in ended.values())

    virtually(scenario)


def test_where_nothing_else_is_asked_a_control_stands_for_the_others() -> None:
    async def scenario() -> None:
        world = World(fails(b"bad"))
        outcome, call = await world.ask(b"bad")
        assert isinstance(outcome, Refusal)
        assert call.wasted == {"http_500": Wasted(7), CONTROL: Wasted(6)}
        assert len(set(world.controls)) == 6
        assert seconds() < 6

    virtually(scenario)


def test_a_control_that_fails_by_chance_is_repeated() -> None:
    async def scenario() -> None:
        world = World(fails(b"bad", b"control 2"))
        outcome, _ = await world.ask(b"bad")
        assert isinstance(outcome, Refusal)
        assert len(world.controls) == 6 + 1

    virtually(scenario)


@pytest.mark.parametrize(("share", "failures"), [(0.0, 3), (0.004, 3), (0.016, 4), (0.13, 7), (0.5, 9), (1.0, 9)])
def test_a_request_is_at_fault_after_failures_that_chance_does_not_explain(share: float, failures: int) -> None:
    rate = FailureRate()
    rate.share = share
    assert rate.failures_of_own(8) == failures
    assert failures == 9 or share**failures < 1e-6


@pytest.mark.parametrize(("requests", "share"), [(64, 0.16), (1_000, 0.16), (1_000, 0.0)])
def test_the_share_of_requests_that_fail_is_learned_at_once(requests: int, share: float) -> None:
    rate, rng = FailureRate(), random.Random(1)
    for _ in range(requests):
        rate.add(failed=rng.random() < share)
    assert rate.share == pytest.approx(share, abs=0.06)
    assert share ** rate.failures_of_own(8) < 2e-5


def test_requests_that_fail_by_chance_count_as_they_come() -> None:
    async def scenario() -> None:
        world = World(lambda body: status(500) if int(body) % 5 == 0 and seconds() < 0.05 else GOOD)
        await world.ask_all([b"1", *numbered(60)])  # one is answered before
        assert world.dispatcher._failures.share > 0.1

    virtually(scenario)


def test_random_failures_are_no_fault_of_any_request() -> None:
    async def scenario() -> None:
        rng = random.Random(3)
        world = World(lambda body: status(500) if rng.random() < 0.13 else GOOD, latency=0.5)
        ended = await world.ask_all(numbered(3_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        assert seconds() < 1.25 * 3_000 / 64 * 0.5

    virtually(scenario)


def test_one_server_out_of_reach_does_not_hide_a_request_that_fails_on_the_other() -> None:
    async def scenario() -> None:
        world = World(fails(b"7"), slots=4, latency=1.0, servers=2)
        world.transport.dead = ("http://0/",)
        ended = await world.ask_all(numbered(400))
        assert Counter(type(outcome) for outcome, _ in ended.values()) == {ChatResponse: 399, Refusal: 1}

    virtually(scenario)


MIXTURE = {
    "500": status(500),
    "429, seconds": LIMITED,
    "429, date": Answer(429, {"Date": formatdate(0, usegmt=True), "Retry-After": formatdate(1, usegmt=True)}, b"{}"),
    "hang": HANGS,
    "malformed": Answer(200, {}, b"<html>"),
    "cut": Failure(kind="cut_off", cause="x"),
    "empty": Answer(200, {}, b""),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("latency", "in_series"), [(0.5, 40), (10.0, 4)])
@pytest.mark.parametrize(("mixed", "bound"), [(True, 2.0), (False, 1.5)])
def test_all_that_may_go_wrong_at_most_doubles_a_runs_time(
    latency: float, in_series: int, mixed: bool, bound: float
) -> None:
    rng = random.Random(7)
    always = {b"%d" % number for number in range(100, 2_560, 257)}

    def server(body: bytes) -> Answer | Failure:
        if body in always:
            return status(500)
        kinds, shares = [*FAULTS, ""], [*FAULTS.values(), 1 - sum(FAULTS.values())]
        return MIXTURE.get(rng.choices(kinds, shares)[0], GOOD) if mixed else GOOD

    async def scenario() -> None:
        world = World(server, latency=latency, latency_of_failures=0.002)
        # Calls of a problem one after another, so that what waits holds up its problem.
        problems = 2_560 // in_series
        chains = [numbered(2_560)[number::problems] for number in range(problems)]

        async def solve(bodies: list[bytes]) -> list[Outcome]:
            return [(await world.ask(body))[0] for body in bodies]

        outcomes = [outcome for chain in await asyncio.gather(*map(solve, chains)) for outcome in chain]
        assert sum(isinstance(outcome, Refusal) for outcome in outcomes) == len(always)
        assert all(isinstance(outcome, ChatResponse | Refusal) for outcome in outcomes)
        assert seconds() <= bound * 2_560 / 64 * latency

    virtually(scenario)


def test_a_hang_costs_little_where_answers_are_fast() -> None:
    async def scenario() -> None:
        world = World(lambda body: GOOD, latency=0.02)
        await world.ask_all(numbered(500))
        faults = iter([HANGS])
        world.transport.server = lambda body: next(faults, GOOD)
        started = seconds()
        outcome, call = await world.ask(b"hangs")
        assert isinstance(outcome, ChatResponse)
        assert list(call.wasted) == ["timed_out"]
        assert seconds() - started < 0.5

    virtually(scenario)


def test_the_first_answers_do_not_say_that_later_ones_are_as_fast() -> None:
    async def scenario() -> None:
        world = World(lambda body: GOOD, latency=0.02)
        await world.ask_all(numbered(25))
        world.transport.latency = 1.0
        outcome, call = await world.ask(b"slow")
        assert (type(outcome), call.wasted) == (ChatResponse, {})

    virtually(scenario)


def test_a_hang_ends_where_every_look_at_the_clock_takes_time() -> None:
    class Slow(VirtualLoop):
        def time(self) -> float:
            self._now += 0.0001
            return super().time()

    async def scenario() -> None:
        world = World(lambda body: GOOD, latency=0.02)
        await world.ask_all(numbered(200))
        faults = iter([HANGS])
        world.transport.server = lambda body: next(faults, GOOD)
        started = seconds()
        outcome, _ = await world.ask(b"hangs")
        assert isinstance(outcome, ChatResponse)
        assert seconds() - started < 5

    with asyncio.Runner(loop_factory=Slow) as runner:
        runner.run(scenario())


def test_answers_that_came_while_this_process_stood_still_are_read() -> None:
    async def scenario() -> None:
        world = World(lambda body: GOOD, latency=0.02)
        await world.ask_all(numbered(500))
        post = world.transport.post

        async def read_in_parts(url: str, body: bytes) -> Answer | Failure:
            answer: Answer | Failure = await post(url, body)
            for _ in range(5):
                await asyncio.sleep(0)
            return answer

        world.transport.post = read_in_parts
        loop: Any = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: setattr(loop, "_now", loop._now + 30))
        outcome, call = await world.ask(b"meanwhile")
        assert (type(outcome), call.wasted) == (ChatResponse, {})
        assert seconds() > 30

    virtually(scenario)


# --- outages ------------------------------------------------------------------------------------------------------

SILENCES = {"503": status(503), "401": status(401), "cut": Failure(kind="cut_off", cause="x"), "refused": UNREACHABLE}
OUTAGES = [(1, 15.0, "503"), (64, 15.0, "cut"), (1_800, 15.0, "refused"), (1, 300.0, "401"), (64, 300.0, "503")]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("calls", "down", "kind"), [*OUTAGES, (1_800, 300.0, "503"), (64, 0.5, "503")])
def test_an_outage_costs_its_time_and_nothing_else(calls: int, down: float, kind: str) -> None:
    async def scenario() -> None:
        world = World(lambda body: SILENCES[kind] if 3 < seconds() < 3 + down else GOOD, slots=calls)
        chains = [asyncio.create_task(chain(world, number, until=4 + down)) for number in range(calls)]
        outcomes = [outcome for outcomes in await asyncio.gather(*chains) for outcome, _ in outcomes]
        assert all(isinstance(outcome, ChatResponse) for outcome in outcomes)
        assert seconds() < 5 + down + 15 + math.log2(2 * calls)  # until it is noticed, and the ramp

    virtually(scenario)


async def chain(world: World, number: int, until: float) -> list[tuple[Outcome, Call]]:
    """Ask one request after the other, until a time or an error."""
    ended: list[tuple[Outcome, Call]] = []
    while seconds() < until:
        ended.append(await world.ask(b"%d of %d" % (len(ended), number)))
        if isinstance(ended[-1][0], EngineError):
            break
        await asyncio.sleep(1.0)
    return ended


@pytest.mark.sample(1)
@pytest.mark.parametrize("calls", [1, 64, 1_800])
def test_an_outage_that_does_not_end_is_one_line_after_its_bound(calls: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World(lambda body: GOOD if seconds() < 3 else status(503), slots=calls)
        chains = [asyncio.create_task(chain(world, number, until=10_000)) for number in range(calls)]
        ended = await asyncio.gather(*chains)
        errors = {str(outcomes[-1][0]) for outcomes in ended}
        assert errors == {
            "http://0/v1 unreachable: HTTP 503: made to fail; check that the server works; nothing was answered for "
            "30 min (engine.max_outage)"
        }
        assert 3 + MAX_OUTAGE < seconds() < 6 + MAX_OUTAGE
        # One prober, every 15 s; no call is asked again but the first that failed.
        assert len(world.controls) < 130
        assert len(world.transport.seen) == sum(map(len, ended)) + 1 + len(world.controls)

    virtually(scenario)
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line == (
        "no server answers (http://0/v1 unreachable: HTTP 503: made to fail; check that the server works); calls wait "
        "for up to 30 min (engine.max_outage)"
    )


def test_an_outage_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        for silent_from, silent_to in ((0, 1), (100, 130)):  # a moment's silence is not worth a line
            world = World(lambda body, a=silent_from, b=silent_to: status(503) if a <= seconds() < b else GOOD)
            await asyncio.sleep(silent_from - seconds())
            await world.ask_all(numbered(100))

    virtually(scenario)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition(" (")[0] for line in said][:1] == ["no server answers"]
    assert len(said) == 2
    assert re.fullmatch(r"http://0/v1 answers again, after [0-9.]+ s", said[1])


def test_calls_come_back_by_a_ramp() -> None:
    async def scenario() -> None:
        in_flight: list[int] = []
        world = World(lambda body: status(503) if seconds() < 20 else GOOD, slots=1_800, latency=1.0)
        tasks = [asyncio.create_task(world.ask(body)) for body in numbered(1_800)]
        [endpoint] = world.dispatcher.pool.endpoints
        while not all(task.done() for task in tasks):
            await asyncio.sleep(1.0)
            if seconds() > 20:
                in_flight.append(endpoint.in_flight)
        grown = [number for number in in_flight if number > 0]
        assert grown[:4] == [1, 2, 4, 8]
        assert max(grown) <= 1_024

    virtually(scenario)


def test_nothing_that_fails_in_an_outage_counts_against_its_request() -> None:
    async def scenario() -> None:
        # Up for a second, down for ten, again and again.
        world = World(lambda body: GOOD if seconds() % 11 < 1 else status(503), slots=16, latency=0.3)
        ended = await world.ask_all(numbered(150))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())

    virtually(scenario)


def test_a_404_ends_the_run_at_its_beginning_only() -> None:
    async def scenario() -> None:
        outcome, _ = await World(lambda body: status(404)).ask(b"any")
        assert isinstance(outcome, EngineError)
        assert "check model.id" in str(outcome)
        faults = iter([GOOD, status(404)])
        world = World(lambda body: next(faults, GOOD))
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
        assert call.wasted["http_429"].attempts in range(MAX_LIMITED + 3, MAX_LIMITED + 10)

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
        faults = iter([LIMITED] * RATE_LIMITS_BEFORE_HOLD)
        world = World(lambda body: next(faults, GOOD))
        calls = asyncio.gather(*map(world.ask, numbered(RATE_LIMITS_BEFORE_HOLD)))
        await asyncio.sleep(0.2)
        outcome, _ = await world.ask(b"later")
        assert isinstance(outcome, ChatResponse)
        assert seconds() >= 1.1
        await calls

    virtually(scenario)


@pytest.mark.sample(2)
@pytest.mark.parametrize("burst", [0.5, 1.0])
@pytest.mark.parametrize("rate", [10, 30])
@pytest.mark.parametrize("dated", [False, True])
def test_a_token_bucket_is_used_to_the_full(rate: int, burst: float, dated: bool) -> None:
    async def scenario() -> None:
        bucket = TokenBucket(rate, seconds, burst)
        limited = LIMITED
        if dated:
            dates = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT", "Retry-After": "Sat, 01 Jan 2000 00:00:01 GMT"}
            limited = Answer(429, dates, b"{}")
        world = World(lambda body: GOOD if bucket.admits() else limited, latency=0.02)
        ended = await world.ask_all(numbered(1_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        # The bucket is full at the beginning.
        assert (1_000 - bucket.size) / seconds() >= 0.9 * rate
        assert len(world.transport.seen) < 1.3 * 1_000  # few are sent in vain

    virtually(scenario)


def test_random_429s_cost_about_what_they_cost_their_own_calls() -> None:
    async def scenario() -> None:
        rng = random.Random(5)
        world = World(lambda body: LIMITED if rng.random() < 0.015 else GOOD, latency=0.02)
        ended = await world.ask_all(numbered(2_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        assert seconds() < 4.0  # 0.63 s without; 30 s where each of them held all calls

    virtually(scenario)


RANDOM_LIMITS = [(0.03, 0, 1.3), (0.03, 1, 1.3), (0.05, 0, 1.3), (0.1, 0, 1.5), (0.1, 1, 1.5), (0.2, 0, 3.0)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("share", "seed", "bound"), RANDOM_LIMITS)
def test_random_429s_that_come_long_before_any_answer_slow_nobody_down(share: float, seed: int, bound: float) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        world = World(lambda body: LIMITED if rng.random() < share else GOOD, latency=0.5, latency_of_failures=0.002)
        ended = await world.ask_all(numbered(3_000))
        assert all(isinstance(outcome, ChatResponse) for outcome, _ in ended.values())
        assert seconds() < bound * 3_000 / 64 * 0.5

    virtually(scenario)


@pytest.mark.sample(1)
@pytest.mark.parametrize("latency", [0.5, 2.0])
@pytest.mark.parametrize("burst", [0.5, 1.0])
def test_a_token_bucket_before_slow_answers_is_used_to_the_full(latency: float, burst: float) -> None:
    async def scenario() -> None:
        bucket = TokenBucket(20, seconds, burst)
        world = World(lambda body: GOOD if bucket.admits() else LIMITED, latency=latency, latency_of_failures=0.002)
        await world.ask_all(numbered(1_000))
        assert (1_000 - bucket.size) / (seconds() - latency) >= 0.9 * 20

    virtually(scenario)


def test_a_rate_that_has_become_lower_is_learned() -> None:
    async def scenario() -> None:
        before, after = TokenBucket(40, seconds), TokenBucket(5, seconds)
        world = World(lambda body: GOOD if (before if seconds() < 10 else after).admits() else LIMITED, latency=0.02)
        await world.ask_all(numbered(900))
        assert len(world.transport.seen) < 1.5 * 900

    virtually(scenario)


def test_a_pause_says_nothing_of_the_rate_that_a_server_admits() -> None:
    async def scenario() -> None:
        bucket = TokenBucket(20, seconds)
        world = World(lambda body: GOOD if bucket.admits() else LIMITED, latency=0.02)
        await world.ask_all(numbered(30))  # reaches the limit once
        await asyncio.sleep(600)
        started = seconds()
        await world.ask_all(numbered(400))
        assert seconds() - started < 1.3 * 400 / 20

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


def test_a_server_that_is_free_again_while_a_call_looks_for_it_is_found() -> None:
    class Ticking(VirtualLoop):
        """Time goes on from one look at the clock to the next, as it does."""

        def time(self) -> float:
            self._now += 1.0
            return super().time()

    async def take() -> None:
        pool = EndpointPool(["http://0/v1"], 1, MAX_OUTAGE, DEFAULTS.max_retry_after)
        [endpoint] = pool.endpoints
        async with asyncio.timeout(100):
            # After the next look, before the one after that.
            endpoint.held_until = asyncio.get_running_loop().time() + 1.5
            assert await pool.acquire(0) is endpoint

    with asyncio.Runner(loop_factory=Ticking) as runner:
        runner.run(take())


def test_a_call_that_comes_when_a_server_is_just_free_again_keeps_nobody_waiting() -> None:
    async def take() -> None:
        loop: Any = asyncio.get_running_loop()
        pool = EndpointPool(["http://0/v1"], 2, MAX_OUTAGE, DEFAULTS.max_retry_after)
        [endpoint] = pool.endpoints
        endpoint.held_until = loop.time() + 1.0
        first = asyncio.create_task(pool.acquire(0))
        await asyncio.sleep(0)
        loop._now += 2.0  # the timer is due, and has not run
        async with asyncio.timeout(100):
            assert await pool.acquire(1) is endpoint
            assert await first is endpoint

    virtually(take)


async def test_a_slot_is_not_lost_with_a_cancelled_call() -> None:
    pool = EndpointPool(["http://0/v1"], 1, MAX_OUTAGE, DEFAULTS.max_retry_after)
    entered: list[int] = []

    async def work(number: int) -> None:
        endpoint = await pool.acquire(number)
        entered.append(number)
        pool.release(endpoint)

    endpoint = await pool.acquire(0)
    waiting = [asyncio.create_task(work(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    await asyncio.sleep(0)
    pool.release(endpoint)
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
        _, call = await World(lambda sent: next(faults, GOOD) if sent == body else GOOD).ask(body)
        assert call.wasted.pop(CONTROL).attempts == 4
        assert call.wasted == {
            "http_500": Wasted(1, 0),
            "malformed": Wasted(3, (30 + 12) + (400 + 200) // 4 + (400 // 4 + 1_000)),
            "timed_out": Wasted(1, 100),
        }

    virtually(scenario)


async def test_calls_that_failed_on_the_only_server_are_not_all_looked_at_while_it_is_full() -> None:
    class Watched(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            looked_at.append(place)
            return super().__getitem__(place)

    looked_at: list[int] = []
    pool = EndpointPool(["http://0/v1"], 1, MAX_OUTAGE, DEFAULTS.max_retry_after)
    endpoint = await pool.acquire(0)
    again = [asyncio.create_task(pool.acquire(number, endpoint)) for number in range(1, 21)]
    await asyncio.sleep(0)
    pool._waiting = Watched(pool._waiting)
    pool.release(endpoint)
    assert await again[0] is endpoint
    assert len(looked_at) == 2  # the one that is served, and the next
    for task in again:
        task.cancel()

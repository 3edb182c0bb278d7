"""Several servers of one model, in virtual time: a slow one costs nothing, a dead one is dropped and taken back."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from evorun.models.server.dispatcher import Dispatcher
from evorun.models.server.http import NO_CONNECTION, Answer, Failure
from evorun.models.server.messages import Redactor
from evorun.models.server.pool import EndpointPool
from evorun.models.server.retry import RetryPolicy
from evorun.models.server.wire import ChatResponse
from virtual_time import run_virtually

GOOD = Answer(200, {}, b'{"choices": [{"message": {"content": "fine"}}]}')
UNREACHABLE = Failure(kind=NO_CONNECTION, cause="refused")


class Computer:
    """A server that needs `latency` seconds for a request, and more when it has more than `slots` at once."""

    def __init__(self, latency: float, slots: int | None = None, down: tuple[float, float] = (0, 0)) -> None:
        self.latency = latency
        self.down = down
        self.asked = 0
        self._slots = None if slots is None else asyncio.Semaphore(slots)

    async def answer(self) -> Answer | Failure:
        if self.down[0] < asyncio.get_running_loop().time() < self.down[1]:
            return UNREACHABLE
        self.asked += 1
        if self._slots is None:
            await asyncio.sleep(self.latency)
        else:
            async with self._slots:
                await asyncio.sleep(self.latency)
        return GOOD


class Transport:
    """Takes the first character of the URL's host for the number of the server."""

    def __init__(self, servers: Sequence[Computer]) -> None:
        self.servers = servers
        self.redactor = Redactor()

    async def post(self, url: str, body: bytes) -> Answer | Failure:
        return await self.servers[int(url[len("http://")])].answer()


def dispatcher_to(*servers: Computer, concurrency: int = 64) -> Dispatcher:
    transport: Any = Transport(servers)
    urls = [f"http://{number}/v1" for number in range(len(servers))]
    return Dispatcher(
        transport, EndpointPool(urls, concurrency, 1_800.0, 300.0), RetryPolicy(8, 0.25, 2.0, 300.0), 600.0, {}
    )


async def chains(dispatcher: Dispatcher, count: int, length: int) -> float:
    """Return the seconds of so many chains of so many calls, each after the one before."""

    async def chain() -> None:
        for _ in range(length):
            call = dispatcher.new_call(lambda number: b"control", 100)
            assert isinstance(await dispatcher.send(b"body", call), ChatResponse)

    started = asyncio.get_running_loop().time()
    await asyncio.gather(*(chain() for _ in range(count)))
    return asyncio.get_running_loop().time() - started


def seconds(*servers: dict[str, Any], count: int = 64, length: int = 40) -> float:
    """Return the time of chains on servers of these settings."""

    async def run() -> float:
        return await chains(dispatcher_to(*(Computer(**server) for server in servers)), count, length)

    random.seed(5)
    return run_virtually(run())


SLOW = [(3.0, 8), (0.6, 64), (3.0, 64), (3.0, 150), (30.0, 64), (0.45, 64)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("slow", "count"), SLOW)
def test_a_slow_second_server_makes_no_run_slower(slow: float, count: int) -> None:
    alone = seconds({"latency": 0.3}, count=count)
    assert seconds({"latency": slow}, {"latency": 0.3}, count=count) <= 1.1 * alone


@pytest.mark.sample(1)
@pytest.mark.parametrize(("slots", "other"), [(16, 16), (16, 8), (32, 4)])
def test_two_busy_servers_are_faster_than_the_better_one(slots: int, other: int) -> None:
    alone = seconds({"latency": 0.3, "slots": slots})
    both = seconds({"latency": 0.3, "slots": slots}, {"latency": 0.3, "slots": other})
    assert both <= 1.15 * alone * slots / (slots + other)


def test_equal_servers_get_equal_shares() -> None:
    async def run() -> None:
        servers = Computer(0.3), Computer(0.3)
        await chains(dispatcher_to(*servers), 64, 40)
        assert min(server.asked for server in servers) > 0.4 * 64 * 40

    run_virtually(run())


def test_calls_beyond_one_servers_concurrency_go_to_the_other() -> None:
    alone = seconds({"latency": 0.3}, count=128, length=20)
    assert seconds({"latency": 0.3}, {"latency": 0.3}, count=128, length=20) <= 0.6 * alone


def two_servers() -> EndpointPool:
    """Return a pool of two servers that are known to answer within a second."""
    pool = EndpointPool(["http://0/v1", "http://1/v1"], 4, 1_800.0, 300.0)
    for endpoint in pool.endpoints:
        endpoint.down_since, endpoint.latency = None, 1.0
    return pool


def test_a_call_that_waits_for_another_server_keeps_nobody_else_waiting() -> None:
    async def run() -> None:
        pool = two_servers()
        failing, busy = pool.endpoints
        busy.in_flight = busy.max_in_flight
        again = asyncio.create_task(pool.acquire(0, failing))
        await asyncio.sleep(0)
        async with asyncio.timeout(100):
            assert await pool.acquire(1) is failing
        assert not again.done()
        pool.release(busy)
        assert await again is busy

    run_virtually(run())


def test_a_call_goes_back_to_where_it_failed_rather_than_wait_for_long() -> None:
    async def run() -> None:
        pool = two_servers()
        failing, held = pool.endpoints
        held.held_until = 1.5
        async with asyncio.timeout(1):
            assert await pool.acquire(0, failing) is failing
        held.held_until = 0.5
        assert await pool.acquire(1, failing) is held

    run_virtually(run())


def test_a_server_that_dies_is_dropped_and_taken_back() -> None:
    async def run() -> None:
        stays, dies = Computer(0.3), Computer(0.3, down=(5.0, 60.0))
        dispatcher = dispatcher_to(stays, dies)
        took = await chains(dispatcher, 128, 40)
        assert took < 2 * 12 + 2  # as if there were only one
        asked = dies.asked
        await asyncio.sleep(60 + 15 - asyncio.get_running_loop().time())
        await chains(dispatcher, 128, 10)
        assert dies.asked > asked + 400

    random.seed(5)
    run_virtually(run())


@pytest.mark.nightly
def test_an_outage_of_all_servers_costs_its_time_and_loses_no_call() -> None:
    async def run() -> None:
        servers = Computer(0.3, down=(5.0, 305.0)), Computer(0.3, down=(5.0, 310.0))
        took = await chains(dispatcher_to(*servers), 128, 40)
        assert took < 12 + 305 + 15 + 5  # the calls, the outage, until it is noticed, and the ramp
        assert sum(server.asked for server in servers) < 128 * 40 + 20  # and controls

    random.seed(5)
    run_virtually(run())

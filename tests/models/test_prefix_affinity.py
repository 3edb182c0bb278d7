"""Prefix affinity over several servers: who gets a prompt, when load decides, and what their caches gain."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.models.base import Message, Request
from evorun.models.config import ModelConfig
from evorun.models.server import affinity
from evorun.models.server import pool as pool_module
from evorun.models.server.affinity import BLOCK, SentPrefixes, balanced, hash_blocks
from evorun.models.server.endpoint import Endpoint
from evorun.models.server.pool import OVERTAKING, EndpointPool
from evorun.models.server.wire import RequestEncoder
from virtual_time import run_virtually


def pool_of(servers: int, concurrency: int = 64) -> EndpointPool:
    """Return a pool of servers that are known to answer within a second."""
    pool = EndpointPool([f"http://{number}/v1" for number in range(servers)], concurrency, 1_800.0, 300.0)
    for endpoint in pool.endpoints:
        endpoint.down_since, endpoint.latency, endpoint.last_assigned = None, 1.0, 0.0
    return pool


def prompt(topic: int, end: str = "") -> bytes:
    """Return a body of four blocks and an end; those of different topics begin differently."""
    return f"{topic:08}".encode() * (4 * BLOCK // 8) + end.encode()


# --- what a server was sent ---------------------------------------------------------------------------------------


def common_blocks(one: bytes, other: bytes) -> int:
    """Return the number of whole blocks that two texts begin with, by comparing them."""
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return length // BLOCK


texts = st.lists(st.sampled_from([b"a" * BLOCK, b"b" * BLOCK, b"ab" * (BLOCK // 2), b"a"]), max_size=6).map(b"".join)


@given(sent=st.lists(texts, max_size=5), asked=texts)
def test_a_match_is_the_longest_common_beginning_in_whole_blocks(sent: list[bytes], asked: bytes) -> None:
    prefixes = SentPrefixes()
    for text in sent:
        prefixes.add(hash_blocks(text))
    expected = max((common_blocks(text, asked) for text in sent), default=0)
    assert prefixes.match(hash_blocks(asked)) == expected


def test_memory_is_bounded_and_the_oldest_prompts_ends_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "MAX_BLOCKS", 10)
    prefixes = SentPrefixes()
    for topic in (0, 1, 0, 2):  # four blocks each: one of the three has no room for two of its blocks
        prefixes.add(hash_blocks(prompt(topic)))
    assert [prefixes.match(hash_blocks(prompt(topic))) for topic in range(3)] == [4, 2, 4]


def test_requests_under_two_adapters_share_no_prefix_and_those_with_two_seeds_do() -> None:
    fields = {"max_tokens_field": "max_tokens", "structured_outputs": "none", "send_seed": True, "extra_body": {}}
    model = ModelConfig(name="m", id="m")
    one, other = (RequestEncoder(model, served_name=name, **fields) for name in ("m", "adapter"))  # type: ignore[arg-type]
    request = Request(messages=(Message(role="user", content="Which solution is right? " * 40),))
    again = Request(messages=request.messages, seed=7)
    prefixes = SentPrefixes()
    prefixes.add(hash_blocks(one.encode(request, n=1, drawn=0)))
    assert prefixes.match(hash_blocks(other.encode(request, n=1, drawn=0))) == 0
    assert prefixes.match(hash_blocks(one.encode(again, n=1, drawn=0))) >= 900 // BLOCK


# --- who gets a call ------------------------------------------------------------------------------------------------


async def ask(pool: EndpointPool, number: int, topic: int) -> Endpoint:
    return await pool.acquire(number, None, prompt(topic, str(number)))


def test_prompts_that_begin_alike_go_to_one_server_and_topics_are_spread() -> None:
    async def run() -> list[set[str]]:
        pool = pool_of(2)
        where: list[set[str]] = [set() for _ in range(6)]
        for number in range(60):
            endpoint = await ask(pool, number, number % 6)
            where[number % 6].add(endpoint.url)
            pool.release(endpoint)
        return where

    where = run_virtually(run())
    assert [len(urls) for urls in where] == [1] * 6
    assert sorted(Counter(url for urls in where for url in urls).values()) == [3, 3]


@pytest.mark.parametrize(
    ("loads", "even"), [((0, 0), True), ((1, 0), True), ((2, 0), False), ((9, 5), True), ((10, 5), False)]
)
def test_beyond_one_and_a_half_times_the_idlest_load_the_idlest_gets_a_call(loads: tuple[int, int], even: bool) -> None:
    async def run() -> bool:
        pool = pool_of(2)
        busy, idle = pool.endpoints
        busy.prefixes.add(hash_blocks(prompt(0)))
        busy.in_flight, idle.in_flight = loads
        return await ask(pool, 0, 0) is busy

    assert balanced(loads) is even
    assert run_virtually(run()) is even


def test_a_server_that_is_far_slower_gets_no_call_for_its_cache() -> None:
    async def run() -> None:
        pool = pool_of(2)
        slow, fast = pool.endpoints
        slow.prefixes.add(hash_blocks(prompt(0)))
        slow.latency = 1.9
        assert await ask(pool, 0, 0) is slow
        slow.latency = 2.1
        assert await ask(pool, 1, 0) is fast

    run_virtually(run())


def test_a_call_that_failed_goes_to_another_server_than_that_with_its_prefix() -> None:
    async def run() -> None:
        pool = pool_of(2)
        first = await ask(pool, 0, 0)
        pool.release(first)
        for endpoint in pool.endpoints:
            endpoint.latency = 1.0 if endpoint is first else 1.5  # a little slower, so that both come into question
        assert await pool.acquire(0, first, prompt(0)) is not first

    run_virtually(run())


def test_waiting_calls_get_the_server_with_their_prefix_and_none_waits_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "balanced", lambda loads: True)

    async def run() -> None:
        pool = pool_of(2, concurrency=1)
        busy = [await ask(pool, number, number) for number in range(2)]
        served: list[tuple[int, Endpoint]] = []

        async def wait(number: int, topic: int) -> None:
            served.append((number, await ask(pool, number, topic)))

        of_first = asyncio.create_task(wait(2, 0))
        tasks = [of_first, *(asyncio.create_task(wait(3 + number, 1)) for number in range(OVERTAKING + 20))]
        await asyncio.sleep(0)
        pool.release(busy[1])
        await asyncio.sleep(0)
        while not of_first.done():  # the first server stays busy
            await asyncio.sleep(0)
            pool.release(busy[1])
        assert [number for number, _ in served[:4]] == [3, 4, 5, 6]
        assert served[-1] == (2, busy[1])
        assert len(served) - 1 <= OVERTAKING
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [endpoint.preferred_by for endpoint in pool.endpoints] == [0, 0]

    run_virtually(run())


def test_calls_that_wait_together_wait_for_one_server() -> None:
    async def run() -> None:
        pool = pool_of(2, concurrency=10)
        for endpoint in pool.endpoints:
            endpoint.in_flight = 10
        tasks = [asyncio.create_task(ask(pool, number, number // 4)) for number in range(8)]
        await asyncio.sleep(0)
        assert [endpoint.preferred_by for endpoint in pool.endpoints] == [4, 4]
        for _ in range(4):
            pool.release(pool.endpoints[1])
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [False] * 4 + [True] * 4
        pool.close("the end")
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtually(run())


def test_calls_do_not_wait_for_a_server_that_has_died() -> None:
    async def run() -> None:
        pool = pool_of(2, concurrency=1)
        first, second = [await ask(pool, number, number) for number in range(2)]
        of_first = asyncio.create_task(ask(pool, 2, 0))
        of_second = asyncio.create_task(ask(pool, 3, 1))
        await asyncio.sleep(0)
        assert [first.load, second.load] == [2, 2]
        pool.mark_down(first, "refused")
        assert first.load == 1
        pool.release(second)
        assert await of_first is second  # it came first
        pool.release(second)
        assert await of_second is second
        assert first.prefixes.match(hash_blocks(prompt(0))) == 0
        pool.close("the end")

    run_virtually(run())


# --- what it gains --------------------------------------------------------------------------------------------------


def computed_blocks(servers: int, *, by_prefix: bool) -> int:
    """Return the blocks that the servers' caches lack, of 32 topics with a growing prompt each, all at once."""
    caches: list[set[bytes]] = [set() for _ in range(servers)]

    async def run() -> int:
        pool = pool_of(servers, concurrency=8)
        numbers = iter(range(10**6))
        computed = 0

        async def topic(name: int) -> None:
            nonlocal computed
            for turn in range(10):
                body = prompt(name, "x" * (turn * BLOCK))
                endpoint = await pool.acquire(next(numbers), None, body if by_prefix else b"")
                cache = caches[pool.endpoints.index(endpoint)]
                blocks = {body[:end] for end in range(BLOCK, len(body) + 1, BLOCK)}
                computed += len(blocks - cache)
                cache |= blocks
                await asyncio.sleep(1 + (name * 7 + turn * 3) % 5 / 10)  # calls do not end in the order of their starts
                pool.record_answer(endpoint, endpoint.in_flight, 1.0)
                pool.release(endpoint)

        await asyncio.gather(*(topic(name) for name in range(32)))
        return computed

    return run_virtually(run())


def test_two_caches_compute_hardly_more_than_one() -> None:
    once = 32 * (4 + 9)
    assert computed_blocks(1, by_prefix=False) == once
    assert computed_blocks(2, by_prefix=False) > 1.3 * once
    assert computed_blocks(2, by_prefix=True) < 1.1 * once

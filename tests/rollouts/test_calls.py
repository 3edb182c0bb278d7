"""Model calls of a method: each call once, and little kept of it."""

import asyncio
import gc
import tracemalloc
from itertools import product

import pytest

from building import make_context
from evorun.models import Completion, Reply, Request, Sampling
from evorun.rollouts.calls import Caller
from evorun.tasks.base import Prompt
from method_fixture import Quiz, problem

PROMPT = Prompt(messages=({"role": "user", "content": "?"},))
REPLY = Reply(completions=(Completion(text="", finish_reason="stop", tokens=1),), prompt_tokens=1, seconds=0.0)


class Instant(Caller):
    async def complete(self, key: str, request: Request, step: int) -> Reply:
        return REPLY


async def test_the_same_call_is_refused_and_no_other() -> None:
    ctx = make_context(Quiz(), problem(0), Instant())
    calls = list(product((0, 1), ("generate", "judge"), (0, 1, 63, 64, 130, 1_000_000_000), (0, 1)))

    async def ask(step: int, role: str, index: int, attempt: int) -> None:
        await ctx.ask(PROMPT, Sampling(), role=role, step=step, index=index, attempt=attempt)

    for call in calls:
        await ask(*call)
    for call in calls:
        with pytest.raises(ValueError, match="two calls with the same step"):
            await ask(*call)


async def test_a_call_that_is_done_leaves_a_few_bytes_in_memory() -> None:
    # of a run of paper size, more than a million calls: a tuple of each in a set took 87 bytes
    ctx, calls, batch = make_context(Quiz(), problem(0), Instant()), 0, 48
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for step in range(100):
            for index in range(batch):
                await ctx.ask(PROMPT, Sampling(), role="judge", step=step, index=index, attempt=0)
                calls += 1
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 20 * calls


class HalfRecorded(Caller):
    """Has recorded the calls with these indices; answers each with its index as the text."""

    def __init__(self, known: set[int]) -> None:
        self.known = known
        self.made: list[int] = []

    def recorded(self, key: str, request: Request, step: int) -> Reply | None:
        index = int(key.split("|")[3])
        return _reply(index) if index in self.known else None

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        self.made.append(int(key.split("|")[3]))
        return _reply(self.made[-1])


def _reply(index: int) -> Reply:
    done = Completion(text=str(index), finish_reason="stop", tokens=1)
    return Reply(completions=(done,), prompt_tokens=1, seconds=0.0)


@pytest.mark.parametrize("known", [set(), {0, 2}, {0, 1, 2, 3}])
async def test_of_a_batch_only_what_is_not_recorded_is_asked_for(known: set[int]) -> None:
    model = HalfRecorded(known)
    ctx = make_context(Quiz(), problem(0), model)
    replies = await ctx.generate([PROMPT] * 4, role="generate", step=0, sampling=Sampling())
    assert [reply.completions[0].text for reply in replies] == ["0", "1", "2", "3"]
    assert model.made == sorted({0, 1, 2, 3} - known)
    assert ctx.calls_made == 4


async def test_problems_that_are_replayed_take_turns() -> None:
    # the records of a problem are written, and Ctrl-C is heeded, between two batches
    turns: list[str] = []

    async def replay(name: str) -> None:
        ctx = make_context(Quiz(), problem(0), HalfRecorded({0}))
        for step in range(3):
            await ctx.generate([PROMPT], role="generate", step=step, sampling=Sampling())
            turns.append(name)

    await asyncio.gather(replay("a"), replay("b"))
    assert turns == ["a", "b"] * 3

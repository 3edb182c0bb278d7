"""Model calls of a method: each call once, and little kept of it."""

import gc
import tracemalloc
from itertools import product

import pytest

from building import make_context
from evorun.models import Completion, Reply, Request, Sampling
from evorun.tasks.base import Prompt
from method_fixture import Quiz, problem

PROMPT = Prompt(messages=({"role": "user", "content": "?"},))
REPLY = Reply(completions=(Completion(text="", finish_reason="stop", tokens=1),), prompt_tokens=1, seconds=0.0)


class Instant:
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

"""Responses of methods that search: one call each or, where the task has tools, an episode of several turns."""

from collections.abc import Sequence

from evorun.models.base import Sampling
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import NO_REWARD, Asked, Episode, Rollouts
from evorun.rollouts.replies import read_reply
from evorun.tasks.capabilities import HasTools


async def respond(
    calls: Calls,
    asked: Sequence[Asked],
    *,
    role: str,
    step: int,
    sampling: Sampling,
    attempt: int | Sequence[int] = 0,
    indices: Sequence[int] | None = None,
) -> list[Episode]:
    """Ask for all responses at once and return them, in order; nothing is learned from their tokens.

    When the budget does not allow all, ask only for the first. `Calls.generate` says what identifies a response.
    """
    numbers = range(len(asked)) if indices is None else indices
    attempts = [attempt] * len(asked) if isinstance(attempt, int) else attempt
    has_tools = isinstance(calls.task, HasTools)
    if has_tools:
        return await Rollouts(calls, calls.task, role).play(step, asked, sampling, numbers, attempts)
    # A single call needs no asyncio task: a recorded run repeats many thousands of them.
    prompts = [start.prompt for start in asked]
    replies = await calls.generate(prompts, role=role, step=step, sampling=sampling, attempt=attempts, indices=numbers)
    return [
        Episode(
            start,
            (reply,),
            read_reply(calls.task, start.problem, reply),
            NO_REWARD,
            index,
            calls.key(step, role, index, tried),
        )
        for start, reply, index, tried in zip(asked, replies, numbers, attempts, strict=False)
    ]

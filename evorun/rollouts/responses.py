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
    role: str | Sequence[str],
    step: int,
    sampling: Sampling,
    attempt: int | Sequence[int] = 0,
    indices: Sequence[int] | None = None,
) -> list[Episode]:
    """Ask for all responses at once and return them, in order; nothing is learned from their tokens.

    role: one for all, or one for each. When the budget does not allow all, ask only for the first (with tools: of each
    role). `Calls.generate` says what identifies a response.
    """
    numbers = range(len(asked)) if indices is None else indices
    attempts = [attempt] * len(asked) if isinstance(attempt, int) else attempt
    roles = [role] * len(asked) if isinstance(role, str) else role
    has_tools = isinstance(calls.task, HasTools)
    if has_tools:
        played = []
        for own in dict.fromkeys(roles):
            places = [place for place, other in enumerate(roles) if other == own]
            mine = [asked[p] for p in places], sampling, [numbers[p] for p in places], [attempts[p] for p in places]
            played.append(await Rollouts(calls, calls.task, own).play(step, *mine))
        order = {index: place for place, index in enumerate(numbers)}
        return sorted((episode for episodes in played for episode in episodes), key=lambda e: order[e.number])
    # A single call needs no asyncio task: a recorded run repeats many thousands of them.
    prompts = [start.prompt for start in asked]
    replies = await calls.generate(prompts, role=roles, step=step, sampling=sampling, attempt=attempts, indices=numbers)
    return [
        Episode(
            start,
            (reply,),
            read_reply(calls.task, start.problem, reply),
            NO_REWARD,
            index,
            calls.key(step, own, index, tried),
        )
        for start, reply, own, index, tried in zip(asked, replies, roles, numbers, attempts, strict=False)
    ]

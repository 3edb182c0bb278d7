"""Candidates from prompts: parallel calls, a bounded number of retries for texts that do not parse, nothing lost."""

from collections.abc import Sequence
from typing import NamedTuple

from evorun.methods.base import Candidate, Context
from evorun.models.base import Sampling
from evorun.tasks.base import Prompt, Response


class Proposal(NamedTuple):
    """What one candidate is asked for with."""

    prompt: Prompt
    parents: tuple[str, ...]
    """Ids of the candidates that the prompt shows."""


class Proposed(NamedTuple):
    """Candidates in the order of their proposals; fewer when the budget ran out."""

    parsed: list[Candidate]
    unparsed: list[Candidate]
    """Those whose every attempt failed to parse; `response.error` says how the last one did."""
    unparsable_texts: int
    """Texts that did not parse, retried ones included."""


async def propose(
    ctx: Context,
    proposals: Sequence[Proposal],
    *,
    role: str,
    operator: str,
    step: int,
    sampling: Sampling,
    retries: int,
) -> Proposed:
    """Ask for one candidate a proposal, all at once, and once more for each text that did not parse, `retries` times.

    Candidate ids are `step.place`. A retry has a sampling seed of its own.
    """
    responses: dict[int, Response] = {}
    attempts: dict[int, int] = {}
    unparsable_texts = 0
    pending = list(range(len(proposals)))
    for attempt in range(retries + 1):
        replies = await ctx.generate(
            [proposals[i].prompt for i in pending],
            role=role,
            step=step,
            sampling=sampling,
            attempt=attempt,
            places=pending,
        )
        for i, reply in zip(pending, replies, strict=False):  # the budget may cut the replies short
            text = reply.completions[0].text
            rejected = Response(text="", answer=None, error=f"rejected: {reply.error}")
            responses[i] = ctx.task.parse(ctx.problem, text) if reply.error is None else rejected
            attempts[i] = attempt + 1
        pending = [i for i in pending[: len(replies)] if responses[i].error is not None]
        unparsable_texts += len(pending)
        if not pending:
            break
    candidates = [
        Candidate(
            id=f"{step}.{i}",
            generation=step,
            parents=proposals[i].parents,
            operator=operator,
            response=response,
            attempts=attempts[i],
        )
        for i, response in sorted(responses.items())
    ]
    return Proposed(
        parsed=[c for c in candidates if c.response.error is None],
        unparsed=[c for c in candidates if c.response.error is not None],
        unparsable_texts=unparsable_texts,
    )

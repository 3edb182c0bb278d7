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
    rejected_requests: int
    """Requests that the engine refused; asking again would not help, so they are not retried."""
    truncated_texts: int
    """Texts that ran into `max_tokens`, whether they parsed or not."""


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
    unparsable, rejected, truncated = 0, 0, 0
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
        again = []
        for i, reply in zip(pending, replies, strict=False):  # the budget may cut the replies short
            attempts[i] = attempt + 1
            if reply.error is not None:
                rejected += 1
                responses[i] = Response(text="", answer=None, error=f"rejected: {reply.error}")
                continue
            truncated += reply.completions[0].finish_reason == "length"
            responses[i] = ctx.task.parse(ctx.problem, reply.completions[0].text)
            if responses[i].error is not None:
                unparsable += 1
                again.append(i)
        pending = again
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
        unparsable_texts=unparsable,
        rejected_requests=rejected,
        truncated_texts=truncated,
    )

"""Judges: the one model that is asked for verdicts, or a panel of several whose majority counts."""

from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from evorun.methods.context import Context
from evorun.models.base import Reply, Sampling
from evorun.runs.candidates import REFUSED, Verdict
from evorun.tasks.base import Prompt
from evorun.tasks.capabilities import Judgment


def affordable_judgments(ctx: Context, count: int) -> int:
    """Return how many of so many judgments the budget still allows, each by every judge."""
    return ctx.affordable(count * len(ctx.judges), ctx.judges[0]) // len(ctx.judges)


async def ask_judges(
    ctx: Context, prompts: Sequence[Prompt], *, step: int, sampling: Sampling, first_index: int = 0
) -> list[Judgment]:
    """Put each prompt to every judge, all at once, and return what the majority says, in order.

    When the budget does not allow all of it, the first prompts only. first_index: of the first prompt among all that
    are judged in the step, which tells its calls from those of earlier rounds.
    """
    judges, prompts = ctx.judges, prompts[: affordable_judgments(ctx, len(prompts))]
    replies = await ctx.generate(
        [prompt for prompt in prompts for _ in judges],
        role=judges * len(prompts),
        step=step,
        sampling=sampling,
        indices=[first_index + index for index in range(len(prompts)) for _ in judges],
    )
    judgments = [_read(ctx, reply) for reply in replies]
    return [majority(judgments[first : first + len(judges)]) for first in range(0, len(judgments), len(judges))]


def majority(judgments: Sequence[Judgment]) -> Judgment:
    """Return the first judgment with the most frequent verdict, with all votes; a tie where several are (ours).

    Judgments without a verdict do not vote. A single judge's is returned as it is.
    """
    if len(judgments) == 1:
        return judgments[0]
    votes = tuple(one.verdict for one in judgments)
    counted = Counter(verdict for verdict in votes if verdict != "invalid")
    leaders = [verdict for verdict, count in counted.items() if count == max(counted.values())]
    if len(leaders) > 1:
        return Judgment(verdict="T", reason="The judges disagree.", votes=votes)
    return replace(judgments[votes.index(leaders[0]) if leaders else 0], votes=votes)


def votes_of(judgments: Sequence[Judgment]) -> tuple[tuple[Verdict, ...], ...] | UnsetType:
    """Return the votes behind the judgments of a duel, as records hold them: none where no panel was asked."""
    votes = tuple(judgment.votes for judgment in judgments)
    return votes if any(votes) else UNSET


def _read(ctx: Context, reply: Reply) -> Judgment:
    """Return the judgment in a reply; a request that the engine refused is an invalid one."""
    if reply.error is not None:
        return Judgment(verdict="invalid", reason=f"{REFUSED}{reply.error}")
    judgment: Judgment = ctx.task.parse_judgment(reply.completions[0].text)
    return judgment

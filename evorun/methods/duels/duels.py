"""Duels, shared by methods: the choice of pairs, their judging, and the reading of judgments."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from numpy.typing import NDArray

from evorun.fields import NonNegativeFloat, NonNegativeInt, OneOf, PositiveFloat
from evorun.methods.base import JudgeSettings
from evorun.methods.context import Context
from evorun.methods.duels.arena import POOL_RANKS, RATINGS, Arena, Survivors
from evorun.methods.duels.stopping import RatedStep
from evorun.models.base import Reply, Sampling
from evorun.ratings import bradley_terry
from evorun.runs.archive import Archive
from evorun.runs.candidates import REFUSED, Candidate, Comparison, Outcome, Verdict
from evorun.tasks.base import Prompt
from evorun.tasks.capabilities import Attempt, AttemptOutcome, Explanation, Judgment, Letter

Pair = tuple[int, int]
"""Indices of two candidates of an arena."""
CHOICES = ("thompson", "uniform")
"""Ways to choose among survivors: by draws from the posterior, or uniformly."""


@dataclass(kw_only=True)
class DuelSettings(JudgeSettings):
    """Hyperparameters of duels: part of the configuration of every method that holds them."""

    section = "method"

    duels: NonNegativeInt
    """Pairs to judge per round."""
    duel_choice: Annotated[str, OneOf(CHOICES)]
    """thompson: pairs by double Thompson sampling. uniform: survivors at random. Newcomers come first in both."""
    orders: Annotated[int, Meta(ge=1, le=2)]
    """2: a pair is judged in both orders of presentation, and agreeing verdicts decide. 1: in one order, at random."""
    ties: Annotated[str, OneOf(("drop", "half"))]
    """drop: an undecided duel is no evidence. half: it is half a win for each, unless a verdict was unreadable."""
    rating: Annotated[str, OneOf(RATINGS)]
    """The estimate of a candidate's utility. posterior: the MAP of Eq. 4. win_rate: the logit of the share of duels
    won. elo: Elo's running rating. The uncertainty is always the posterior's."""
    max_pool: Annotated[int, Meta(ge=2)]
    """Maximum number of survivors."""
    pool_rank: Annotated[str, OneOf(POOL_RANKS)]
    """The order of survivors when too many pass the confidence rule: by mean, upper bound or lower bound."""
    bound_width: NonNegativeFloat
    """Half width of the confidence bounds that decide survival, in posterior standard deviations."""
    prior_sd: PositiveFloat
    """sigma_0 of Eq. 4, in logits."""

    def arena(self, archive: Archive) -> Arena:
        """Return an empty arena, whose archived candidates go to `archive`."""
        return Arena(self.prior_sd, rating=self.rating, half_wins=self.ties == "half", archive=archive)

    def survivors(self, arena: Arena, due: Sequence[int] = ()) -> Survivors:
        """Return the arena's survivors; those that are `due` to duel are among them."""
        return arena.survivors(self.bound_width, self.max_pool, self.pool_rank, due)

    def follow_ratings(self, steps: Iterable[RatedStep]) -> Iterator[bradley_terry.Posterior]:
        """Yield an arena's ratings after each step."""
        arena = self.arena(Archive())
        for step in steps:
            arena.add(step.added)
            arena.update(step.comparisons)
            yield bradley_terry.Posterior(arena.mean, arena.sd, 0)


def rate_in_arena(
    settings: DuelSettings, candidates: Sequence[Candidate], duels: Sequence[Comparison]
) -> bradley_terry.Posterior:
    """Return the ratings that an arena with these settings gives candidates after these duels."""
    arena = settings.arena(Archive())
    arena.add(candidates)
    arena.update(duels)
    return bradley_terry.Posterior(arena.mean, arena.sd, 0)


def select_duels(
    arena: Arena,
    survivors: NDArray[np.intp],
    newcomers: Sequence[int],
    count: int,
    rng: np.random.Generator,
    choice: str = "thompson",
) -> list[Pair]:
    """Choose `count` different pairs of survivors by double Thompson sampling (section 2.2 and 2.3.3).

    Each duel takes two independent draws from the posterior: the first draw's maximizer meets the best other candidate
    of the second draw. The first duels go to newcomers among the survivors, each against the best of a draw, so that
    every new arrival is evaluated. A pair duels at most once per batch; which of the two is `first` is random. With
    `choice` uniform, all candidates share one distribution, so none is preferred.
    """
    if len(survivors) < 2:
        return []
    count = min(count, len(survivors) * (len(survivors) - 1) // 2)
    mean, sd = (arena.mean[survivors], arena.sd[survivors]) if choice == "thompson" else (0.0, 1.0)
    positions = {index: position for position, index in enumerate(survivors.tolist())}
    waiting = [positions[index] for index in newcomers if index in positions]
    chosen: dict[frozenset[int], Pair] = {}
    for duel in range(count):
        draws = mean + sd * rng.standard_normal((2, len(survivors)))
        challengers, opponents = (-draws).argsort().tolist()
        # The first pair, by challenger then opponent, that is not chosen yet; `count` guarantees that there is one.
        a, b = next(
            (challenger, opponent)
            for challenger in waiting[duel : duel + 1] + challengers
            for opponent in opponents
            if opponent != challenger and frozenset((challenger, opponent)) not in chosen
        )
        if rng.random() >= 0.5:  # judges favour a position, so neither candidate may always have it
            a, b = b, a
        chosen[frozenset((a, b))] = (int(survivors[a]), int(survivors[b]))
    return list(chosen.values())


async def hold_duels(ctx: Context, arena: Arena, settings: DuelSettings, *, step: int) -> list[Comparison]:
    """Choose pairs among the survivors, judge them, and update the arena's posterior; return the comparisons."""
    # Candidates without a duel come first, in the order of arrival, one per duel; the others wait for the next round.
    # One place in the pool stays free for an opponent.
    due = arena.waiting[: min(settings.duels, settings.max_pool - 1)]
    # Eliminated candidates no longer duel: the budget goes to those that may still be best.
    rivals = settings.survivors(arena, due).indices
    pairs = select_duels(arena, rivals, due, settings.duels, ctx.rng("duels", step), settings.duel_choice)
    comparisons = await judge_pairs(
        ctx, arena.candidates, pairs, orders=settings.orders, step=step, sampling=settings.judge_sampling
    )
    arena.update(comparisons)
    return comparisons


def warn_if_no_duels(calls: int | None, responses: int, key: str, orders: int, judges: int = 1) -> list[str]:
    """Return a warning if the initial responses, set by `method.<key>`, leave too few calls per problem for a duel."""
    each = orders * judges
    if calls is None or responses < 2 or calls >= responses + each:
        return []
    return [
        f"budget of {calls} calls per problem: {responses} initial responses (method.{key}) leave too few for a duel, "
        f"which takes {each}, so the first response is the answer; raise the budget or lower method.{key}"
    ]


async def judge_pairs(
    ctx: Context,
    candidates: Sequence[Candidate],
    pairs: Sequence[Pair],
    *,
    orders: int,
    step: int,
    sampling: Sampling,
    judged_before: int | None = None,
) -> list[Comparison]:
    """Judge each pair in `orders` orders of presentation: 2 swaps it (appendix A.1), 1 keeps the given order.

    When the budget does not allow all duels, only the first ones are judged. A step may judge again and again, the same
    pair too: each duel has calls and random numbers of its own. judged_before: number of pairs that the step has judged
    before; None: those that this context has seen judged.
    """
    # Whole duels only: with two orders, a verdict on one decides nothing.
    pairs = pairs[: affordable_judgments(ctx, orders * len(pairs)) // orders]
    shown = [order for i, j in pairs for order in ((i, j), (j, i))[:orders]]
    prompts = [ctx.task.judge_prompt(ctx.problem, candidates[a], candidates[b]) for a, b in shown]
    first_index = ctx.next_index(step, ctx.judges[0]) if judged_before is None else orders * judged_before
    judgments = await ask_judges(ctx, prompts, step=step, sampling=sampling, first_index=first_index)
    comparisons = []
    for number, (i, j) in enumerate(pairs):
        duel_judgments = judgments[number * orders : (number + 1) * orders]
        verdicts = tuple(judgment.verdict for judgment in duel_judgments)
        comparisons.append(
            Comparison(
                first=candidates[i].id,
                second=candidates[j].id,
                verdicts=verdicts,
                outcome=OUTCOMES.get(verdicts),
                reasons=tuple(judgment.reason for judgment in duel_judgments),
                votes=group_votes(duel_judgments),
            )
        )
    return comparisons


def make_attempt(challenger: Candidate, duel: Comparison) -> Attempt:
    """Return a challenger of the best so far, for the refinement prompt, with the outcome of its duel and the reason.

    The reason is the judge's in the first order of presentation.
    """
    outcome: AttemptOutcome = "undecided"
    if duel.outcome is not None:
        winner = duel.first if duel.outcome == "first" else duel.second
        outcome = "won" if winner == challenger.id else "lost"
    letter: Letter = "A" if duel.first == challenger.id else "B"
    return Attempt(response=challenger, outcome=outcome, judged=Explanation(reason=duel.reasons[0], letter=letter))


OUTCOMES: Mapping[tuple[Verdict, ...], Outcome] = {
    ("A",): "first",
    ("B",): "second",
    ("A", "B"): "first",
    ("B", "A"): "second",
}
"""Winners by verdicts; two orders of presentation must agree (appendix A.1, d_ij = 1)."""


def affordable_judgments(ctx: Context, count: int) -> int:
    """Return how many of `count` judgments, each by every judge, the budget still allows."""
    return ctx.affordable(count * len(ctx.judges), ctx.judges[0]) // len(ctx.judges)


async def ask_judges(
    ctx: Context, prompts: Sequence[Prompt], *, step: int, sampling: Sampling, first_index: int = 0
) -> list[Judgment]:
    """Ask every judge each prompt, all concurrently, and return the majority's judgments in order.

    When the budget does not allow all prompts, only the first ones are judged. first_index: index of the first prompt
    within the step, which separates its calls from those of earlier rounds.
    """
    judges, prompts = ctx.judges, prompts[: affordable_judgments(ctx, len(prompts))]
    replies = await ctx.generate(
        [prompt for prompt in prompts for _ in judges],
        role=judges * len(prompts),
        step=step,
        sampling=sampling,
        indices=[first_index + index for index in range(len(prompts)) for _ in judges],
    )
    judgments = [_parse_judgment(ctx, reply) for reply in replies]
    return [majority(judgments[first : first + len(judges)]) for first in range(0, len(judgments), len(judges))]


def majority(judgments: Sequence[Judgment]) -> Judgment:
    """Return the first judgment with the most frequent verdict, with all votes; several such verdicts are a tie (ours).

    Judgments without a verdict do not vote. A single judgment is returned unchanged.
    """
    if len(judgments) == 1:
        return judgments[0]
    votes = tuple(judgment.verdict for judgment in judgments)
    counted = Counter(verdict for verdict in votes if verdict != "invalid")
    leaders = [verdict for verdict, count in counted.items() if count == max(counted.values())]
    if len(leaders) > 1:
        return Judgment(verdict="T", reason="The judges disagree.", votes=votes)
    return replace(judgments[votes.index(leaders[0]) if leaders else 0], votes=votes)


def group_votes(judgments: Sequence[Judgment]) -> tuple[tuple[Verdict, ...], ...] | UnsetType:
    """Return the votes behind a duel's judgments for the record; unset where no panel judged."""
    votes = tuple(judgment.votes for judgment in judgments)
    return votes if any(votes) else UNSET


def _parse_judgment(ctx: Context, reply: Reply) -> Judgment:
    """Parse the judgment in a reply; a refused request gives an invalid one."""
    if reply.error is not None:
        return Judgment(verdict="invalid", reason=f"{REFUSED}{reply.error}")
    judgment: Judgment = ctx.task.parse_judgment(reply.completions[0].text)
    return judgment

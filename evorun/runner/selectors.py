"""Selectors over a recorded pool of candidates: those that need no further call, and the schedules of those that do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from evorun.methods.context import Context
from evorun.methods.duels.duels import DuelSettings, hold_duels
from evorun.methods.duels.pair_ratings import SwissSettings, hold_swiss_rounds
from evorun.models.base import Sampling
from evorun.ratings import selection
from evorun.runs.candidates import Candidate

Chosen = int | Sequence[float] | None
"""The place of the chosen candidate, or the probability of each where chance chooses; None for an empty pool."""

MIN_SHARE = 0.1
"""Gate of best_of_majority, as in conf/method/best_of_n.yaml."""
KEEP = 0.1
"""Share of the surest candidates that vote, as in conf/method/deepconf.yaml."""
MIN_WEIGHT = 0.1
"""Weight of a comparison with equal ratings, as in conf/method/v1_infer.yaml."""
ASKING = ("swiss", "thompson", "uniform")
"""Selectors that ask a judge. swiss: ratings of pairs by a Swiss tournament. thompson, uniform: duels by double
Thompson sampling or at random, in both orders, and their Bradley-Terry posterior."""


@dataclass(frozen=True)
class Pool:
    """The candidates of a problem, and all that was recorded about them."""

    candidates: Sequence[Candidate]
    answers: Sequence[str] | None
    """Equal where two answers count as the same; None where no two texts do."""
    rewards: Mapping[str, Sequence[float]]
    """Rewards in [0, 1] or of any other scale without negative values, by name."""
    win_rates: Sequence[float] | None
    """By the ratings of pairs; None where none were recorded."""
    utilities: Sequence[float]
    """Of the primary score; higher is better, and a candidate without one is the worst."""


def choose_freely(pool: Pool) -> dict[str, Chosen]:
    """Return the choice of each selector that needs no further call, by the name that tables show."""
    size = len(pool.candidates)
    chosen: dict[str, Chosen] = {"one at random": [1 / size] * size if size else None}
    if pool.answers is not None:
        # Among answers that are equally frequent, the first one; within an answer, its first candidate.
        chosen["majority"] = selection.weighted_vote(pool.answers, [1.0] * size)
    for name, rewards in pool.rewards.items():
        chosen[f"best by {name}"] = selection.best(rewards)
        wins = selection.count_best_of_m(rewards, isqrt(size)) if size else []
        chosen[f"best of √N by {name}"] = [float(count / size ** isqrt(size)) for count in wins] or None
        if pool.answers is not None:
            chosen[f"weighted by {name}"] = selection.weighted_vote(pool.answers, rewards)
            chosen[f"majority of bests by {name}"] = selection.majority_of_bests(pool.answers, rewards)
            chosen[f"best of majority by {name}"] = selection.best_of_majority(pool.answers, rewards, MIN_SHARE)
    if "confidence" in pool.rewards and pool.answers is not None:
        weights = pool.rewards["confidence"]
        sure = [w if keeps else 0.0 for w, keeps in zip(weights, selection.find_surest(weights, KEEP), strict=True)]
        chosen["deepconf"] = selection.weighted_vote(pool.answers, sure)
    if pool.win_rates is not None:
        chosen["best by ratings"] = selection.best(pool.win_rates)
    chosen["oracle"] = selection.best(pool.utilities)
    return chosen


async def choose_by_asking(
    ctx: Context, candidates: Sequence[Candidate], selector: str, comparisons: int, sampling: Sampling
) -> int | None:
    """Return the place of the candidate that a selector of ASKING chooses; None for an empty pool.

    comparisons: prompts for each judge; a duel in both orders takes two. Settings are those of the papers.
    """
    if selector == "swiss":
        swiss = SwissSettings(
            comparisons=comparisons,
            min_opponents=2,
            window=8,
            min_weight=MIN_WEIGHT,
            orders=1,
            estimate="win_rate",
            prior_sd=1.0,
            judge_temperature=sampling.temperature,
            judge_max_tokens=sampling.max_tokens,
        )
        mean: Sequence[float] = [0.5] * len(candidates)
        async for swiss_round in hold_swiss_rounds(ctx, candidates, swiss):
            mean = swiss_round.mean.tolist()
        return selection.best(mean)
    duels = DuelSettings(
        duels=max(1, min(24, comparisons // 4)),
        duel_choice=selector,
        orders=2,
        ties="drop",
        rating="posterior",
        max_pool=max(2, len(candidates)),
        pool_rank="mean",
        bound_width=2.0,
        prior_sd=1.0,
        judge_temperature=sampling.temperature,
        judge_max_tokens=sampling.max_tokens,
    )
    arena, left, step = duels.arena(ctx.archive), comparisons // 2, 0
    arena.add(candidates)
    while left > 0:
        step += 1
        duels.duels = min(duels.duels, left)
        held = await hold_duels(ctx, arena, duels, step=step)
        if not held:
            break
        left -= len(held)
    return arena.best()

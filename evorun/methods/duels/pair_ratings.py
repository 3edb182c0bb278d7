"""Responses rated in pairs, and the Swiss tournament that chooses the pairs (V1-Infer, arXiv 2603.04304)."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import UNSET, Meta
from numpy.typing import NDArray

from evorun.fields import NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.methods.base import JudgeSettings
from evorun.methods.context import Context
from evorun.methods.duels.duels import Pair, affordable_judgments
from evorun.methods.duels.stopping import RatedStep
from evorun.models.base import Sampling
from evorun.ratings import bradley_terry
from evorun.ratings.bradley_terry import Posterior
from evorun.ratings.swiss import Swiss, weigh
from evorun.runs.candidates import REFUSED, Candidate, CandidateId, Comparison, Outcome, Verdict
from evorun.tasks.capabilities import PairRating

RatedPair = tuple[Pair, tuple[float, float]]
"""A pair's places and their ratings, from 1 to 10."""


@dataclass(kw_only=True)
class SwissSettings(JudgeSettings):
    """Hyperparameters of a Swiss tournament of responses."""

    section = "method"

    comparisons: PositiveInt | None
    """B: pairs to rate; None: until the budget ends. Two responses meet once only."""
    min_opponents: NonNegativeInt
    """d_min: opponents of each response before neighbours in the ranking meet."""
    window: PositiveInt
    """h: free neighbours in the ranking among which the closest win rate is looked for."""
    min_weight: Annotated[float, Meta(gt=0, le=1)]
    """tau: the weight of a comparison with equal ratings; that of the largest difference is 1."""
    orders: Annotated[int, Meta(ge=1, le=2)]
    """1: a pair is shown in one order, at random. 2: in both, and the ratings are averaged."""
    estimate: Annotated[str, OneOf(("win_rate", "posterior"))]
    """The estimate that decides. win_rate: the share of the weights won. posterior: the MAP of Bradley-Terry utilities,
    to which each comparison counts by its weight. Pairs are chosen by the win rate in both."""
    prior_sd: PositiveFloat
    """sigma_0 of the posterior, in logits."""

    def rate(self, n: int, comparisons: Sequence[RatedPair]) -> NDArray[np.float64]:
        """Return the win rates or utilities, of shape (n,), by the ratings of pairs."""
        return rate_by_pairs(n, comparisons, self.min_weight, self.estimate, self.prior_sd)

    def posterior(self, n: int, comparisons: Sequence[RatedPair]) -> Posterior:
        """Return the posterior of n utilities, to which each comparison counts by its weight."""
        return weighted_posterior(n, comparisons, self.min_weight, self.prior_sd)

    def follow_ratings(self, steps: Iterable[RatedStep]) -> Iterator[Posterior]:
        """Yield the posterior after each step."""
        places: dict[CandidateId, int] = {}
        rated: list[RatedPair] = []
        for step in steps:
            places |= {candidate.id: len(places) + place for place, candidate in enumerate(step.added)}
            rated += list_rated_pairs(step.comparisons, places)
            yield self.posterior(len(places), rated)


def list_rated_pairs(comparisons: Iterable[Comparison], places: Mapping[CandidateId, int]) -> list[RatedPair]:
    """Return the comparisons whose ratings could be read, by the places of their candidates."""
    return [
        ((places[duel.first], places[duel.second]), duel.ratings) for duel in comparisons if duel.ratings is not UNSET
    ]


def rate_by_pairs(
    n: int,
    comparisons: Sequence[RatedPair],
    min_weight: float,
    estimate: str = "win_rate",
    prior_sd: float = 1.0,
) -> NDArray[np.float64]:
    """Return the estimates, of shape (n,), of items by the ratings of pairs; see `SwissSettings.estimate`."""
    if estimate == "win_rate":
        table = Swiss(n, min_opponents=0, window=1, min_weight=min_weight)
        for (i, j), ratings in comparisons:
            table.update(i, j, ratings)
        return table.mean
    return weighted_posterior(n, comparisons, min_weight, prior_sd).mean


def weighted_posterior(n: int, comparisons: Sequence[RatedPair], min_weight: float, prior_sd: float) -> Posterior:
    """Return the Bradley-Terry posterior of n items by the ratings of pairs, each with its weight of V1-Infer."""
    weighed = [weigh(ratings, min_weight) for _, ratings in comparisons]
    return bradley_terry.fit(
        n,
        [i for (i, _), _ in comparisons],
        [j for (_, j), _ in comparisons],
        scores=[score for _, score in weighed],
        weights=[weight for weight, _ in weighed],
        prior_sd=prior_sd,
    )


class Round(NamedTuple):
    """A round of a Swiss tournament, with the estimates after it."""

    step: int
    comparisons: list[Comparison]
    mean: NDArray[np.float64]
    """Of shape (candidates,)."""
    rated: Sequence[RatedPair]
    """All comparisons so far whose ratings could be read."""


async def hold_swiss_rounds(
    ctx: Context, candidates: Sequence[Candidate], settings: SwissSettings
) -> AsyncIterator[Round]:
    """Yield the rounds of a tournament, numbered from 1, until B comparisons are made or the budget ends.

    With one response or two fewer pairs may be left than the budget allows.
    """
    n, made = len(candidates), list[RatedPair]()
    table = Swiss(n, min_opponents=settings.min_opponents, window=settings.window, min_weight=settings.min_weight)
    left = settings.comparisons
    for step in count(1):
        # Guard: a round may have more pairs than comparisons are left.
        pairs = table.pair(ctx.rng("pairs", step))[:left]
        comparisons = await rate_pairs(
            ctx, candidates, pairs, orders=settings.orders, step=step, sampling=settings.judge_sampling
        )
        if not comparisons:
            return
        for (i, j), comparison in zip(pairs, comparisons, strict=False):  # the budget may leave fewer
            ratings = None if comparison.ratings is UNSET else comparison.ratings
            table.update(i, j, ratings)
            made += [] if ratings is None else [((i, j), ratings)]
        left = None if left is None else left - len(comparisons)
        yield Round(step, comparisons, settings.rate(n, made), made)


async def rate_pairs(
    ctx: Context,
    candidates: Sequence[Candidate],
    pairs: Sequence[Pair],
    *,
    orders: int,
    step: int,
    sampling: Sampling,
    judged_before: int | None = None,
) -> list[Comparison]:
    """Rate each pair in `orders` orders of presentation, by every judge; when the budget ends, only the first ones.

    A comparison's ratings are the means over all that could be read; the higher one wins. judged_before: as of
    `judge_pairs`.
    """
    pairs = pairs[: affordable_judgments(ctx, orders * len(pairs)) // orders]
    judges = ctx.judges
    shown = [order for i, j in pairs for order in ((i, j), (j, i))[:orders]]
    prompts = [ctx.task.rating_prompt(ctx.problem, candidates[a], candidates[b]) for a, b in shown]
    first_index = ctx.next_index(step, judges[0]) if judged_before is None else orders * judged_before
    replies = await ctx.generate(
        [prompt for prompt in prompts for _ in judges],
        role=judges * len(prompts),
        step=step,
        sampling=sampling,
        indices=[first_index + index for index in range(len(prompts)) for _ in judges],
    )
    found = [
        ctx.task.parse_ratings(reply.completions[0].text)
        if reply.error is None
        else PairRating(ratings=None, reason=f"{REFUSED}{reply.error}")
        for reply in replies
    ]
    each = orders * len(judges)
    return [
        _compare(candidates[i], candidates[j], found[number * each : (number + 1) * each], orders)
        for number, (i, j) in enumerate(pairs)
    ]


def _compare(first: Candidate, second: Candidate, found: Sequence[PairRating], orders: int) -> Comparison:
    """Return the comparison of a pair by its ratings: those of the given order come first."""
    by_order = [found[start : start + len(found) // orders] for start in range(0, len(found), len(found) // orders)]
    means = [_mean([rating.ratings for rating in ratings if rating.ratings is not None]) for ratings in by_order]
    ordered = [mean if order == 0 else (mean[1], mean[0]) for order, mean in enumerate(means) if mean is not None]
    overall = _mean(ordered)
    outcome: Outcome | None = None
    if overall is not None and overall[0] != overall[1]:
        outcome = "first" if overall[0] > overall[1] else "second"
    return Comparison(
        first=first.id,
        second=second.id,
        verdicts=tuple(_name_verdict(mean) for mean in means),
        outcome=outcome,
        reasons=tuple(ratings[0].reason for ratings in by_order),
        ratings=UNSET if overall is None else overall,
    )


def _mean(ratings: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    if not ratings:
        return None
    return sum(first for first, _ in ratings) / len(ratings), sum(second for _, second in ratings) / len(ratings)


def _name_verdict(ratings: tuple[float, float] | None) -> Verdict:
    if ratings is None:
        return "invalid"
    return "A" if ratings[0] > ratings[1] else "B" if ratings[0] < ratings[1] else "T"

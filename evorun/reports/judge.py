"""The judge of a run, beside the figures in its results: along the run, in words, and calibrated."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evorun.runs.results import mean_score
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import Proportion, pooled_share


def decisive_by_step(duels: Iterable[ComparisonRecord]) -> dict[int, Metric]:
    """Return the share of duels with a winner, by step; intervals draw problems again."""
    shares: dict[int, dict[str, Proportion]] = defaultdict(lambda: defaultdict(Proportion))
    for duel in duels:
        shares[duel.step][duel.problem].add(duel.outcome is not None)
    return {step: pooled_share(list(by_problem.values())) for step, by_problem in sorted(shares.items())}


def judge_warning(metrics: Mapping[str, Metric]) -> str | None:
    """Return a sentence on the consequences when no duel was decisive; None when some were, or there were none."""
    decisive, position = metrics.get("decisive_rate"), metrics.get("position_a_rate")
    if decisive is None or decisive.value != 0:
        return None
    meaning = "no duel decided anything: the posterior stays the prior, and the ranking says nothing about quality."
    # in both orders the same letter: each duel was a draw, and nothing was learned from any of them
    if position is not None and position.value in (0, 1):
        named = "A" if position.value else "B"
        return f"Position bias 100 %: whenever the judge chose, it named {named}, whoever was shown there, so {meaning}"
    return f"None of the {decisive.n} duels was decisive: {meaning}"


@dataclass(frozen=True)
class Bin:
    """Candidates whose posterior means lie in [low, high], and their mean score."""

    low: float
    high: float
    figure: Metric
    """The mean of their measure: of right and wrong, the share that is right."""


def calibration(graded: list[tuple[float, float]], measure: Score, bins: int = 8) -> list[Bin]:
    """Cut candidates, given as (posterior mean, value), into at most `bins` groups of about equal size by mean.

    Candidates with equal means share a group, so groups can be fewer.
    """
    # equal numbers, not equal widths: posterior means crowd around the prior, and outer bins would be nearly empty
    ordered = sorted(graded)
    groups: list[Bin] = []
    start = 0
    while start < len(ordered):
        remaining = max(bins - len(groups), 1)
        end = start + max(1, (len(ordered) - start) // remaining)
        # equal means cannot be told apart by any cut
        while end < len(ordered) and ordered[end][0] == ordered[end - 1][0]:
            end += 1
        members = ordered[start:end]
        figure = mean_score(measure, [value for _, value in members])
        groups.append(Bin(members[0][0], members[-1][0], figure))
        start = end
    return groups

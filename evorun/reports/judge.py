"""The judge of a run, beside the figures in its results: along the run, in words, and calibrated."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from evorun.runs.schema import ComparisonRecord, Manifest, Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import Proportion, clustered_mean, pooled_share


def judges(manifest: Manifest) -> bool:
    """Tell whether the method has candidates judged in duels, by its settings."""
    settings = manifest.config.get("method")
    return isinstance(settings, Mapping) and "judge_temperature" in settings and settings.get("choose") != "oracle"


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


class Rated(NamedTuple):
    """A candidate that has a posterior and a grade."""

    problem: str
    mean: float
    """Of its posterior."""
    value: float
    """Of the run's measure."""


@dataclass(frozen=True)
class Bin:
    """Candidates whose posterior means are near one another."""

    mean: float
    """Mean of their posterior means."""
    figure: Metric
    """The mean of their measure: of right and wrong, the share that is right. Its interval draws problems again."""


def calibration(rated: Iterable[Rated], measure: Score, bins: int = 8) -> list[Bin]:
    """Cut candidates into at most `bins` groups by posterior mean, of equal size as nearly as equal means allow.

    Candidates with equal means share a group, so groups can be fewer.
    """
    # equal numbers, not equal widths: posterior means crowd around the prior, and outer bins would be nearly empty
    ordered = sorted(rated, key=lambda one: one.mean)
    n = len(ordered)
    # equal means cannot be told apart by any cut
    between = [i for i in range(1, n) if ordered[i].mean > ordered[i - 1].mean]
    cuts = {min(between, key=lambda i: abs(i - wanted * n / bins)) for wanted in range(1, bins) if between}
    edges = sorted({0, n, *cuts})
    groups = [ordered[start:end] for start, end in pairwise(edges)]
    return [Bin(fmean(one.mean for one in members), _pooled(members, measure)) for members in groups]


def _pooled(members: Sequence[Rated], measure: Score) -> Metric:
    """Return the mean of the measure; candidates of one problem are not independent, so problems are drawn again."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for one in members:
        by_problem[one.problem].append(one.value)
    if measure.rate:
        return pooled_share([Proportion(sum(map(bool, values)), len(values)) for values in by_problem.values()])
    sums, counts = [sum(values) for values in by_problem.values()], [len(values) for values in by_problem.values()]
    alike = len({one.value for one in members}) == 1
    return Metric(sum(sums) / len(members), None if alike else clustered_mean(sums, counts), len(members))

"""Confidence intervals of the figures that a run reports."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorun.runs.crossed import POWER, CrossedMean
from evorun.runs.schema import Metric


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion, as fractions in [0, 1].

    With `n` = 0 nothing is known and the interval is (0, 1). Raises ValueError unless 0 <= successes <= n.
    Source: E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n, got successes={successes}, n={n}")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and n the bound is exact on paper; rounding must not move it inside.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


@dataclass
class Proportion:
    """The share of successes in `n` trials."""

    successes: int = 0
    n: int = 0

    def add(self, success: bool) -> None:
        """Count one trial."""
        self.successes += success
        self.n += 1

    @property
    def value(self) -> float | None:
        """The share, in [0, 1]; None without trials."""
        return self.successes / self.n if self.n else None

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The Wilson 95 % interval; None without trials."""
        return wilson(self.successes, self.n) if self.n else None

    def metric(self) -> Metric:
        """Return the share as results carry it."""
        return Metric(self.value, self.ci95, self.n)


_TAILS = (1 - 0.95) / 2, (1 + 0.95) / 2
"""The ends of a 95 % interval, as quantiles."""

RESAMPLES = 9_999
"""Resamples of a bootstrap whose ends are read to three figures (ours)."""

MIN_SEEDS = 3
"""Minimum seeds for an interval of their mean (ours): for two, Student's extends 13 standard errors each way."""

MIN_PROBLEMS = 4
"""Minimum problems for an interval of a study's figure that resamples them (ours): of three, 1 resample in 27 is the
same problem three times, more than a 95 % interval cuts off at an end, so that the interval would be their range."""

ENOUGH_SEEDS = 5
"""Minimum seeds for claims about other seeds that are not rough (ours)."""

_MAX_BATCH_VALUES = 2**16
"""Maximum values that a bootstrap draws at a time (ours): few enough for the processor's cache. Intervals do not
depend on it."""

_TOLERANCE = 1e-9
"""Values that differ by no more count as equal: scores are no finer, and BCa's acceleration would not be finite."""


def mean_interval(values: Sequence[float], resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval (BCa) of a mean, or None where all values are equal.

    Scores are bounded and skewed, with many values at a bound. A t interval is symmetric and can leave the range of
    possible values. BCa follows the skew, is second-order accurate and stays between the minimum and the maximum.
    Equal values give no interval, since their resamples say nothing about the uncertainty. Sources:
    B. Efron (1987), "Better bootstrap confidence intervals"; DiCiccio and Efron (1996), "Bootstrap confidence
    intervals". The same values always give the same interval.
    """
    return _mean_interval(tuple(values), resamples)


# cached: along a run most scores stay the same from step to step, and a bootstrap takes tens of milliseconds
@lru_cache(maxsize=1024)
def _mean_interval(values: tuple[float, ...], resamples: int) -> tuple[float, float] | None:
    if not values or max(values) - min(values) <= _TOLERANCE:
        return None
    from scipy.stats import bootstrap  # takes half a second to import

    result = bootstrap(
        (np.array(values),),
        np.mean,
        vectorized=True,
        n_resamples=resamples,
        batch=_batch_size(len(values)),
        method="BCa",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _batch_size(values: int) -> int:
    """Return the number of resamples to draw at a time, each of `values` values."""
    return max(1, _MAX_BATCH_VALUES // values)


def _tail(units: int) -> float:
    """Return the share of resamples below a 95 % percentile interval, and above it, where `units` are drawn again.

    Of few units, resamples vary less than samples do: the percentiles go out as far as Student's t is wider than the
    normal distribution. Source: Hesterberg (2015), "What teachers should know about the bootstrap", the expanded
    percentile interval.
    """
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(units / (units - 1)) * stdtrit(units - 1, 0.025)))


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return Student's t interval of the mean of independent values, or None where fewer than two of them differ.

    For the means of a few seeds, which are nearly normal and too few to resample. Source: Student (1908),
    "The probable error of a mean".
    """
    if len(values) < 2 or max(values) - min(values) <= _TOLERANCE:
        return None
    from scipy.special import stdtrit

    half = stdtrit(len(values) - 1, (1 + confidence) / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - float(half), mean + float(half)


def clip_interval(
    interval: tuple[float, float] | None, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """Return an interval cut at the ends of a range, None for an open end; None where it would be the whole range."""
    if interval is None:
        return None
    clipped = (
        interval[0] if low is None else max(interval[0], low),
        interval[1] if high is None else min(interval[1], high),
    )
    return None if clipped == (low, high) else clipped


def crossed_interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean of values [seeds, problems] for new seeds and new problems.

    A seed's values share its luck; a problem's values share its difficulty. The variance of the mean is the variance
    between seeds plus that between problems, less the residual, which both contain; it is at least the larger of the
    two. The smaller factor gives the degrees of freedom. None below two of each, or where all values are equal.
    Source: Searle, Casella and McCulloch (1992), "Variance components", the crossed random model without repetition.
    """
    seeds, problems = values.shape
    if min(seeds, problems) < 2 or np.ptp(values) <= _TOLERANCE:
        return None
    from scipy.special import stdtrit

    mean, by_seed, by_problem = float(values.mean()), values.mean(axis=1), values.mean(axis=0)
    residual = values - by_seed[:, None] - by_problem[None, :] + mean
    residual_variance = float((residual**2).sum()) / ((seeds - 1) * (problems - 1)) / (seeds * problems)
    seed_variance, problem_variance = by_seed.var(ddof=1) / seeds, by_problem.var(ddof=1) / problems
    variance = max(seed_variance + problem_variance - residual_variance, seed_variance, problem_variance)
    half = float(stdtrit(min(seeds, problems) - 1, _TAILS[1])) * math.sqrt(variance)
    return mean - half, mean + half


class Spread(NamedTuple):
    """Variances of a paired difference: ours minus theirs, on one problem with one seed."""

    problem: float
    """Between problems: the true difference is larger on some than on others."""
    seed: float = 0.0
    """Between seeds: what all problems of a seed share, as where training decides the luck of all of them."""
    rest: float = 0.0
    """Of a problem and a seed, beyond both."""

    def standard_error(self, problems: int, seeds: int = 1) -> float:
        """Return the standard error of the mean difference over problems x seeds."""
        return math.sqrt(self.problem / problems + self.seed / seeds + self.rest / (problems * seeds))


def worst_spread(low: float = 0.0, high: float = 1.0, mean: float | None = None) -> Spread:
    """Return the largest spread of two arms whose scores lie in [low, high] and are not anti-correlated.

    mean: of the scores, if known; then the largest spread about it. For a rate p that is 2 p (1 - p). All of it is
    between problems, so that further seeds add nothing: how far seeds agree is unknown. Source: Bhatia and Davis
    (2000), "A better bound on the variance". Raises ValueError unless low <= mean <= high.
    """
    middle = (low + high) / 2 if mean is None else mean
    if not low <= middle <= high:
        raise ValueError(f"expected a mean in [{low:g}, {high:g}], got {middle:g}")
    return Spread(problem=2 * (high - middle) * (middle - low))


def estimate_spread(differences: NDArray[np.float64]) -> Spread:
    """Estimate the spread from differences [seeds, problems], ours minus theirs; at least two problems.

    One seed says nothing about others: all of its spread is then between problems. Estimates below 0 count as 0.
    Source: Searle, Casella and McCulloch (1992), "Variance components", the analysis of variance of a crossed random
    model without repetition.
    """
    seeds, problems = differences.shape
    if problems < 2:
        raise ValueError(f"expected differences on at least two problems, got {problems}")
    by_seed, by_problem = differences.mean(axis=1), differences.mean(axis=0)
    if seeds == 1:
        return Spread(problem=float(by_problem.var(ddof=1)))
    residual = differences - by_seed[:, None] - by_problem[None, :] + differences.mean()
    rest = float((residual**2).sum()) / ((seeds - 1) * (problems - 1))
    problem, seed = float(by_problem.var(ddof=1)) - rest / seeds, float(by_seed.var(ddof=1)) - rest / problems
    return Spread(max(problem, 0.0), max(seed, 0.0), rest)


def smallest_difference(spread: Spread, problems: int, seeds: int = 1, *, power: float = POWER) -> float | None:
    """Return the smallest true difference that a two-sided test at `LEVEL` finds with probability `power`.

    In the unit of the scores that `spread` is of. The test is that of `CrossedMean`, with the weights that it has on
    average for this spread. One seed's luck cannot be told from the difference; the answer is then for that seed. None
    below two problems.
    """
    if problems < 2:
        return None
    if seeds == 1:
        spread = spread._replace(seed=0.0)
    rest = spread.rest / (problems * seeds)
    of_seeds, of_problems = spread.seed / seeds + rest, spread.problem / problems + rest
    weight = of_seeds / (of_seeds + of_problems) if seeds > 1 and of_seeds else 0.0
    mean = CrossedMean(0.0, spread.standard_error(problems, seeds), seeds, problems, weight)
    return mean.smallest_difference(power)


def pass_at(k: int, responses: int, right: int) -> float:
    """Return the probability that at least one of `k` responses, drawn from `responses` to a problem, is right.

    Source: Chen et al. (2021), "Evaluating Large Language Models Trained on Code", Eq. 1. Raises ValueError unless
    k <= responses.
    """
    if not 0 < k <= responses:
        raise ValueError(f"expected 0 < k <= responses, got k={k}, responses={responses}")
    return 1 - math.comb(responses - right, k) / math.comb(responses, k)


def clustered_mean(
    sums: Sequence[float], counts: Sequence[int], resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap percentile interval of a mean pooled over clusters, or None below two of them.

    Cluster i has `counts[i]` trials that add up to `sums[i]` (for a share, its successes). Trials within a cluster
    (the duels of one problem, the two verdicts of one duel) are not independent, so whole clusters are resampled.
    Source: Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 3.8; `_tail`. The same data
    always give the same interval.
    """
    clusters = np.array([(total, n) for total, n in zip(sums, counts, strict=True) if n > 0], dtype=float)
    if len(clusters) < 2:
        return None
    from scipy.stats import bootstrap  # takes half a second to import

    def pooled(totals: NDArray[np.float64], trials: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = totals.sum(axis=axis) / trials.sum(axis=axis)
        return mean

    result = bootstrap(
        (clusters[:, 0], clusters[:, 1]),
        pooled,
        paired=True,
        n_resamples=resamples,
        batch=_batch_size(len(clusters)),
        confidence_level=1 - 2 * _tail(len(clusters)),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def pooled_share(shares: Sequence[Proportion], resamples: int = RESAMPLES) -> Metric:
    """Return a share pooled over clusters (problems, say), with an interval that resamples clusters.

    If all clusters have the same share, so has every resample, which says nothing about the uncertainty. Then shares
    of 0 and 1 get Wilson's interval, with each cluster as one trial, and others get none. Neither is there an interval
    where it would be the whole range.
    """
    known = [share for share in shares if share.n]
    successes, trials = [share.successes for share in known], [share.n for share in known]
    pooled = Proportion(sum(successes), sum(trials))
    if pooled.value in (0, 1):
        return Metric(pooled.value, wilson(len(known) if pooled.value else 0, len(known)), pooled.n)
    all_equal = len({share.value for share in known}) == 1
    ci95 = None if all_equal else clustered_mean(successes, trials, resamples)
    return Metric(pooled.value, None if ci95 == (0, 1) else ci95, pooled.n)


def pooled_mean(sums: Sequence[float], counts: Sequence[int]) -> Metric:
    """Return a mean pooled over clusters, with an interval that resamples them; none where all have the same mean."""
    known = [(total, n) for total, n in zip(sums, counts, strict=True) if n]
    means, trials = [total / n for total, n in known], sum(n for _, n in known)
    varies = bool(means) and max(means) - min(means) > _TOLERANCE
    return Metric(sum(sums) / trials if trials else None, clustered_mean(sums, counts) if varies else None, trials)


def rank_correlation(groups: Sequence[Sequence[tuple[str, float, float]]], resamples: int = RESAMPLES) -> Metric:
    """Return the mean over groups of Spearman's rank correlation of two values within the group; n: members.

    groups: the name, first value and second value of each member. A member may be in several groups; each group has
    its own scale (prompts tested with the weights of a step, say). The interval resamples members with all their values
    (bootstrap, percentiles); below `MIN_PROBLEMS` there is none. There is no value where neither quantity varies.
    """
    names = sorted({name for group in groups for name, _, _ in group})
    position = {name: index for index, name in enumerate(names)}
    if not names:
        return Metric(None, None, 0)
    members = [np.array([position[name] for name, _, _ in group], dtype=int) for group in groups]
    values = [np.array([pair for _, *pair in group], dtype=float).reshape(-1, 2).T for group in groups]

    def correlate(times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the correlation of each group [groups, resamples]. times: multiplicity of each member."""
        return np.array([_spearman(times[:, own], *pair) for own, pair in zip(members, values, strict=True)])

    in_data = correlate(np.ones((1, len(names))))[:, 0]
    varying = [index for index, one in enumerate(in_data) if not np.isnan(one)]
    if not varying:
        return Metric(None, None, len(names))
    value = float(np.mean(in_data[varying]))
    if len(names) < MIN_PROBLEMS:
        return Metric(value, None, len(names))
    members, values = [members[index] for index in varying], [values[index] for index in varying]
    rng, size = np.random.default_rng(0), _batch_size(len(names))
    means = list[NDArray[np.float64]]()
    for first in range(0, resamples, size):
        drawn = rng.multinomial(len(names), [1 / len(names)] * len(names), min(size, resamples - first))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a resample in which nothing varies has no correlation
            means.append(np.nanmean(correlate(drawn.astype(float)), axis=0))
    tail = _tail(len(names))
    low, high = np.nanquantile(np.concatenate(means), (tail, 1 - tail))
    return Metric(value, (float(low), float(high)), len(names))


def _spearman(weights: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank correlation for each row of weights [resamples, members]; NaN where one of the two is constant.

    A weight is the multiplicity of a member, whose copies are tied; ranks are means over ties.
    """

    def centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
        order = np.argsort(values, kind="stable")
        _, starts, place = np.unique(values[order], return_index=True, return_inverse=True)
        tied = np.add.reduceat(weights[:, order], starts, axis=1)
        ranks = np.empty_like(weights)
        ranks[:, order] = (np.cumsum(tied, axis=1) - 0.5 * tied)[:, place]
        centred: NDArray[np.float64] = ranks - (weights * ranks).sum(1, keepdims=True) / total
        return centred

    total = np.maximum(weights.sum(1, keepdims=True), 1)
    a, b = centred_ranks(x), centred_ranks(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: NDArray[np.float64] = (weights * a * b).sum(1) / np.sqrt(
            (weights * a * a).sum(1) * (weights * b * b).sum(1)
        )
    return correlation

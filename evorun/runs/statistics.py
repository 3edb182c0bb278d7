"""Confidence intervals of the figures that a run reports."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

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
    """A share of `n` trials, counted up."""

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


RESAMPLES = 9_999
"""Of a bootstrap whose ends are read off to three figures (ours)."""

MIN_SEEDS = 3
"""Below it means over seeds have no interval (ours): of two, Student's is 13 standard errors wide each way."""

MIN_DRAWN_SEEDS = 5
"""Below it seeds are too few to draw again (ours): three have ten different draws."""

_DRAWN_AT_ONCE = 2**16
"""Values that a bootstrap draws at once (ours), so that they stay in the processor's cache however many problems there
are; the intervals are the same for any number."""

_ALIKE = 1e-9
"""Values that differ by no more are alike: scores are no finer, and BCa's acceleration is not finite for them."""


def mean_interval(
    values: Sequence[float], confidence: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the bootstrap interval (BCa) of a mean, or None where all values are alike.

    Scores are bounded and skewed, with many values at a bound: a t interval is symmetric and can leave the range of
    possible values; this one follows the skew, is second-order accurate and stays between the least and the greatest
    value. Values that are all alike give no interval, for their draws say nothing about the uncertainty. Sources:
    B. Efron (1987), "Better bootstrap confidence intervals"; DiCiccio and Efron (1996), "Bootstrap confidence
    intervals". The same values always give the same interval.
    """
    return _mean_interval(tuple(values), confidence, resamples)


# along a run most scores do not change from step to step, and a bootstrap takes tens of milliseconds
@lru_cache(maxsize=1024)
def _mean_interval(values: tuple[float, ...], confidence: float, resamples: int) -> tuple[float, float] | None:
    if not values or max(values) - min(values) <= _ALIKE:
        return None
    from scipy.stats import bootstrap  # half a second to import: not before it is needed

    result = bootstrap(
        (np.array(values),),
        np.mean,
        vectorized=True,
        confidence_level=confidence,
        n_resamples=resamples,
        batch=_resamples_at_once(len(values)),
        method="BCa",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _resamples_at_once(values: int) -> int:
    """Return the number of resamples to draw together, each of so many values."""
    return max(1, _DRAWN_AT_ONCE // values)


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return Student's t interval of the mean of independent values, or None where fewer than two of them differ.

    For the means of a few seeds, which are near enough to normal, and too few to draw again. Source: Student (1908),
    "The probable error of a mean".
    """
    if len(values) < 2 or max(values) - min(values) <= _ALIKE:
        return None
    from scipy.special import stdtrit

    half = stdtrit(len(values) - 1, (1 + confidence) / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean - float(half), mean + float(half)


def crossed_interval(values: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return Student's t interval of the mean of values [seeds, problems] over other seeds and other problems.

    The values of a seed have its luck in common, those of a problem its difficulty: the variance of the mean is the
    sum of what the means of seeds and those of problems show, less the rest, which both contain; never less than either
    shows alone. Degrees of freedom are those of the fewer. None below two of each, or where all values are alike.
    Source: Searle, Casella and McCulloch (1992), "Variance components", the crossed random model without repetition.
    """
    seeds, problems = values.shape
    if min(seeds, problems) < 2 or np.ptp(values) <= _ALIKE:
        return None
    from scipy.special import stdtrit

    mean, by_seed, by_problem = float(values.mean()), values.mean(axis=1), values.mean(axis=0)
    rest = values - by_seed[:, None] - by_problem[None, :] + mean
    of_rest = float((rest**2).sum()) / ((seeds - 1) * (problems - 1)) / (seeds * problems)
    of_seeds, of_problems = by_seed.var(ddof=1) / seeds, by_problem.var(ddof=1) / problems
    variance = max(of_seeds + of_problems - of_rest, of_seeds, of_problems)
    half = float(stdtrit(min(seeds, problems) - 1, (1 + confidence) / 2)) * math.sqrt(variance)
    return mean - half, mean + half


def drawn_seeds_interval(
    seeds: Sequence[Mapping[str, float]], confidence: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the bootstrap percentile interval of the mean over seeds of their means, over other seeds and problems.

    Each seed has a value by problem. Seeds are drawn again and, independently, problems: a problem with all its seeds,
    for its difficulty is in all of them. None below `MIN_DRAWN_SEEDS` seeds or two problems, or where all values are
    alike. The same values always give the same interval. Sources: Davison and Hinkley (1997), "Bootstrap Methods and
    their Application", section 3.8, on two levels; A. B. Owen (2007), "The pigeonhole bootstrap": of crossed levels it
    is too wide rather than too narrow.
    """
    problems = sorted({problem for of_seed in seeds for problem in of_seed})
    values = np.array([[of_seed.get(problem, np.nan) for problem in problems] for of_seed in seeds])
    known = ~np.isnan(values)
    if len(seeds) < MIN_DRAWN_SEEDS or len(problems) < 2 or np.ptp(values[known]) <= _ALIKE:
        return None
    values = np.where(known, values, 0.0)
    rng = np.random.default_rng(0)
    means = []
    at_once = _resamples_at_once(len(seeds) + len(problems))
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        of_seeds = rng.multinomial(len(seeds), [1 / len(seeds)] * len(seeds), size)
        of_problems = rng.multinomial(len(problems), [1 / len(problems)] * len(problems), size)
        counts = of_problems @ known.T
        # a seed none of whose problems were drawn has no mean: the others stand for it
        weights = of_seeds * (counts > 0)
        sums = (weights * (of_problems @ values.T) / np.maximum(counts, 1)).sum(axis=1)
        means.append(sums[weights.any(axis=1)] / weights.sum(axis=1)[weights.any(axis=1)])
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def pass_at(k: int, responses: int, right: int) -> float:
    """Return the probability that one of `k` is right, when they are drawn from so many responses to a problem.

    Source: Chen et al. (2021), "Evaluating Large Language Models Trained on Code", Eq. 1. Raises ValueError unless
    k <= responses.
    """
    if not 0 < k <= responses:
        raise ValueError(f"expected 0 < k <= responses, got k={k}, responses={responses}")
    return 1 - math.comb(responses - right, k) / math.comb(responses, k)


def clustered_mean(
    sums: Sequence[float], counts: Sequence[int], confidence: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the bootstrap percentile interval of a mean pooled over clusters, or None with fewer than two of them.

    Cluster i has `counts[i]` trials that add up to `sums[i]` (for a share, its successes). Trials within a cluster
    (the duels of one problem, the two verdicts of one duel) are not independent, so whole clusters are drawn again.
    Source: Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 3.8. The same data always
    give the same interval.
    """
    clusters = np.array([(total, n) for total, n in zip(sums, counts, strict=True) if n > 0], dtype=float)
    if len(clusters) < 2:
        return None
    from scipy.stats import bootstrap  # half a second to import: not before it is needed

    def pooled(totals: NDArray[np.float64], of: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = totals.sum(axis=axis) / of.sum(axis=axis)
        return mean

    result = bootstrap(
        (clusters[:, 0], clusters[:, 1]),
        pooled,
        paired=True,
        confidence_level=confidence,
        n_resamples=resamples,
        batch=_resamples_at_once(len(clusters)),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def pooled_share(shares: Sequence[Proportion]) -> Metric:
    """Return a share over all clusters (problems, say) together, its interval by drawing clusters again.

    Where all clusters are alike so is every draw, which says nothing about the uncertainty: of nothing but successes,
    or none, the interval is then Wilson's, each cluster counting as one trial; else there is none. Nor is there one
    where it would be the whole range.
    """
    known = [share for share in shares if share.n]
    successes, trials = [share.successes for share in known], [share.n for share in known]
    whole = Proportion(sum(successes), sum(trials))
    if whole.value in (0, 1):
        return Metric(whole.value, wilson(len(known) if whole.value else 0, len(known)), whole.n)
    alike = len({share.value for share in known}) == 1
    ci95 = None if alike else clustered_mean(successes, trials)
    return Metric(whole.value, None if ci95 == (0, 1) else ci95, whole.n)


def rank_correlation(
    groups: Sequence[Sequence[tuple[str, float, float]]], confidence: float = 0.95, resamples: int = RESAMPLES
) -> Metric:
    """Return Spearman's rank correlation of two values within groups, as its mean over the groups; n: the members.

    groups: name, first value, second value of each member; a member may be in several groups, which have scales of
    their own (prompts tested with the weights of a step, say). The interval draws members again, with all that is
    known of each (bootstrap, percentiles); there is none below four of them. No value where neither varies.
    """
    names = sorted({name for group in groups for name, _, _ in group})
    position = {name: index for index, name in enumerate(names)}
    if not names:
        return Metric(None, None, 0)
    drawn = np.random.default_rng(0).multinomial(len(names), [1 / len(names)] * len(names), resamples)
    times = np.vstack([np.ones(len(names)), drawn])  # how often each member is there: as it is, then in the resamples
    found = []
    for group in groups:
        weights = times[:, [position[name] for name, _, _ in group]]
        found.append(
            _spearman(weights, *(np.array(values) for values in zip(*(one[1:] for one in group), strict=True)))
        )
    known = np.array([row for row in found if not np.isnan(row[0])])
    if not len(known):
        return Metric(None, None, len(names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample in which nothing varies has no correlation
        means = np.nanmean(known, axis=0)
    value = float(means[0])
    if len(names) < 4:
        return Metric(value, None, len(names))
    low, high = np.nanquantile(means[1:], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Metric(value, (float(low), float(high)), len(names))


def _spearman(weights: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank correlation for each row of weights [resamples, members]; NaN where one of the two is constant.

    A weight is how often a member is there, all of them tied with one another: ranks are means over ties.
    """

    def centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
        below = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
        ranks = weights @ below.T
        centred: NDArray[np.float64] = ranks - (weights * ranks).sum(1, keepdims=True) / total
        return centred

    total = np.maximum(weights.sum(1, keepdims=True), 1)
    a, b = centred_ranks(x), centred_ranks(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = (weights * a * b).sum(1) / np.sqrt(
            (weights * a * a).sum(1) * (weights * b * b).sum(1)
        )
    return found

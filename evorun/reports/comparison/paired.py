"""Two runs on the same problems: the difference in a rate or another score, and whether it could be chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from evorun.runs.crossed import CrossedMean, crossed_mean, tabulate
from evorun.runs.statistics import MIN_SEEDS, RESAMPLES, clip_interval, clustered_mean, mean_interval, t_interval

Interval = tuple[float, float] | None
"""None if the data say nothing about the uncertainty."""

_ROUNDING = 1e-12
"""A share of the variance below it is rounding."""


def excludes_0(interval: Interval) -> bool:
    """Tell whether there is an interval, and 0 is outside it."""
    return interval is not None and not interval[0] <= 0 <= interval[1]


@dataclass(frozen=True)
class PairedOutcomes:
    """Counts of right and wrong of two runs, `ours` and `theirs`, on the same problems."""

    both: int
    """Problems that both got right; likewise `ours_only`, `theirs_only` (discordant) and `neither`."""
    ours_only: int
    theirs_only: int
    neither: int

    @property
    def n(self) -> int:
        """Problems."""
        return self.both + self.ours_only + self.theirs_only + self.neither

    @property
    def discordant(self) -> int:
        """Problems that one of the runs got right and the other wrong."""
        return self.ours_only + self.theirs_only

    @property
    def difference(self) -> float:
        """Share right of ours minus that of theirs, in [-1, 1]. Raises ZeroDivisionError without problems."""
        return (self.ours_only - self.theirs_only) / self.n

    def __add__(self, other: "PairedOutcomes") -> "PairedOutcomes":
        """Return the counts over both."""
        return PairedOutcomes(
            self.both + other.both,
            self.ours_only + other.ours_only,
            self.theirs_only + other.theirs_only,
            self.neither + other.neither,
        )


def count_paired_outcomes(ours: Sequence[bool], theirs: Sequence[bool]) -> PairedOutcomes:
    """Count the outcomes of two runs on the same problems in the same order. Raises ValueError on unequal lengths."""
    pairs = list(zip(ours, theirs, strict=True))
    return PairedOutcomes(*(pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))))


@dataclass(frozen=True)
class PairedScores:
    """The difference in a score of two runs, `ours` and `theirs`, on the same problems."""

    n: int
    difference: float
    """Mean of ours minus mean of theirs."""
    ci95: Interval
    """Bootstrap interval that resamples problems, each with its pair and all its seeds, which stay fixed; None if all
    differ by the same amount."""
    higher: int
    """Problems on which ours is higher."""
    lower: int
    problems_per_seed: Sequence[int] = ()
    """Problems of each seed, over several."""
    seeds_ci95: Interval = None
    """Student's interval over the seeds, each against the reference of its seed; None below `MIN_SEEDS`."""
    crossed: CrossedMean | None = None
    """The difference as an estimate for other problems and, with several seeds, other seeds; None if all differ by the
    same amount."""
    two_way_ci95: Interval = None
    """Its interval over several seeds; None where it would be the whole range."""

    @property
    def tested_ci95(self) -> Interval:
        """The unadjusted interval that goes with a test of the difference."""
        return self.two_way_ci95 if self.problems_per_seed else self.ci95

    @property
    def seed_share(self) -> float | None:
        """The share of the seeds in the variance of the difference, in [0, 1]; None without several seeds."""
        return None if self.crossed is None or len(self.problems_per_seed) < 2 else self.crossed.seed_weight

    @property
    def seeds_agree(self) -> bool:
        """True where all seeds have the same mean difference, so that the interval holds no variance between them."""
        return self.seed_share is not None and self.seed_share < _ROUNDING


def compare_scores(ours: Sequence[float], theirs: Sequence[float]) -> PairedScores:
    """Compare a score on the same problems in the same order, at least one. Raises ValueError on unequal lengths."""
    differences = [our - their for our, their in zip(ours, theirs, strict=True)]
    return _summarise(differences, mean_interval(differences), np.array([differences]))


def compare_rates(counts: PairedOutcomes) -> PairedScores:
    """Compare a rate on the same problems, at least one."""
    differences = np.repeat([1.0, -1.0, 0.0], [counts.ours_only, counts.theirs_only, counts.both + counts.neither])
    return PairedScores(
        n=counts.n,
        difference=counts.difference,
        ci95=rate_difference_interval(counts),
        higher=counts.ours_only,
        lower=counts.theirs_only,
        crossed=crossed_mean(differences[None, :]),
    )


def compare_pooled_scores(seeds: Sequence[Mapping[str, float]], max_difference: float | None = None) -> PairedScores:
    """Compare a score over several seeds, given ours minus theirs by problem for each seed; at least one of each.

    max_difference: intervals over seeds are clipped to it, and None if they would span the whole range.
    """
    # sorted: the resamples of a bootstrap follow the order
    problems = sorted({problem for seed in seeds for problem in seed})
    differences = [[seed[problem] for seed in seeds if problem in seed] for problem in problems]
    sums, counts = [sum(values) for values in differences], [len(values) for values in differences]
    # if all problems differ alike, so does every resample, which says nothing about the uncertainty
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) < 2
    # whole problems are resampled: a problem's seeds are not independent
    ci95 = None if alike else clustered_mean(sums, counts)
    means = [fmean(seed.values()) for seed in seeds]
    summary = _summarise([value for values in differences for value in values], ci95, tabulate(seeds))
    both = summary.crossed if len(seeds) > 1 else None
    lowest = None if max_difference is None else -max_difference
    return replace(
        summary,
        problems_per_seed=[len(seed) for seed in seeds],
        seeds_ci95=clip_interval(t_interval(means), lowest, max_difference) if len(means) >= MIN_SEEDS else None,
        two_way_ci95=None if both is None else clip_interval(both.interval(), lowest, max_difference),
    )


def _summarise(differences: Sequence[float], ci95: Interval, table: NDArray[np.float64]) -> PairedScores:
    return PairedScores(
        n=len(differences),
        difference=sum(differences) / len(differences),
        ci95=ci95,
        higher=sum(difference > 0 for difference in differences),
        lower=sum(difference < 0 for difference in differences),
        crossed=crossed_mean(table),
    )


def mcnemar_p(counts: PairedOutcomes) -> float:
    """Return the exact two-sided p-value of McNemar's test; 1 when no problem is discordant.

    Under the null hypothesis each discordant problem is as likely to be ours as theirs. Source: Q. McNemar (1947),
    "Note on the sampling error of the difference between correlated proportions or percentages", in its exact form.
    """
    if not counts.discordant:
        return 1.0
    from scipy.stats import binomtest  # half a second to import: not before it is needed

    return float(binomtest(counts.ours_only, counts.discordant, 0.5).pvalue)


def rate_difference_interval(counts: PairedOutcomes, confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the bootstrap percentile interval of the difference in a rate, resampling problems with their pairs.

    None when no problem is discordant: then every resample gives 0, which says nothing about the uncertainty. A
    problem adds 1, -1 or 0 to the difference, so n problems drawn with replacement are one multinomial draw of counts.
    The same counts always give the same interval. Source: Davison and Hinkley (1997), "Bootstrap Methods and their
    Application", section 2.2.
    """
    if not counts.discordant:
        return None
    shares = np.array([counts.ours_only, counts.theirs_only, counts.both + counts.neither]) / counts.n
    # a fixed seed: the same runs must give the same page
    draws = np.random.default_rng(0).multinomial(counts.n, shares, size=RESAMPLES)
    tail = (1 - confidence) / 2
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / counts.n, [tail, 1 - tail])
    return float(low), float(high)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, in the order given.

    Source: S. Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        # an adjusted value is never below that of a smaller p: the procedure stops at the first that is not rejected
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted

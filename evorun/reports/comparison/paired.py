"""Two runs on the same problems: the difference in a rate or another score, and whether it could be chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorun.runs.statistics import (
    MIN_SEEDS,
    RESAMPLES,
    clustered_mean,
    mean_interval,
    t_interval,
    two_way_bootstrap_interval,
)

Interval = tuple[float, float] | None
"""None where the data say nothing about the uncertainty."""


@dataclass(frozen=True)
class Paired:
    """Counts of right and wrong of two runs, `ours` and `theirs`, on the same problems."""

    both: int
    """Problems that both got right; so `ours_only`, `theirs_only` (discordant) and `neither`."""
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
        """Share that ours got right less that of theirs, in [-1, 1]. Raises ZeroDivisionError without problems."""
        return (self.ours_only - self.theirs_only) / self.n

    def __add__(self, other: "Paired") -> "Paired":
        """Return the counts over both."""
        return Paired(
            self.both + other.both,
            self.ours_only + other.ours_only,
            self.theirs_only + other.theirs_only,
            self.neither + other.neither,
        )


def paired(ours: Sequence[bool], theirs: Sequence[bool]) -> Paired:
    """Count the outcomes of two runs on the same problems in the same order. Raises ValueError on unequal lengths."""
    pairs = list(zip(ours, theirs, strict=True))
    return Paired(*(pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))))


@dataclass(frozen=True)
class PairedScores:
    """The difference in a score of two runs, `ours` and `theirs`, on the same problems."""

    n: int
    difference: float
    """Mean of ours less mean of theirs."""
    ci95: Interval
    """Bootstrap interval that draws problems again with their pairs and all their seeds, which stay as they are; None
    where all differ by the same amount."""
    higher: int
    """Problems on which ours is the higher one."""
    lower: int
    sizes: Sequence[int] = ()
    """Problems of each seed, over several."""
    over_seeds: Interval = None
    """Student's interval over the seeds, each beside the reference of its seed; None below `MIN_SEEDS`."""
    over_both: Interval = None
    """Two-way bootstrap interval, which resamples seeds and problems; None below `MIN_BOOTSTRAP_SEEDS`, and where it
    would be the whole range."""


def paired_scores(ours: Sequence[float], theirs: Sequence[float]) -> PairedScores:
    """Compare a score on the same problems in the same order, at least one. Raises ValueError on unequal lengths."""
    differences = [our - their for our, their in zip(ours, theirs, strict=True)]
    return _compared(differences, mean_interval(differences))


def paired_rates(counts: Paired) -> PairedScores:
    """Compare a rate on the same problems, at least one."""
    return PairedScores(
        n=counts.n,
        difference=counts.difference,
        ci95=difference_interval(counts),
        higher=counts.ours_only,
        lower=counts.theirs_only,
    )


def pooled_scores(seeds: Sequence[Mapping[str, float]], largest: float | None = None) -> PairedScores:
    """Compare a score over several seeds, given ours less theirs of each seed, by problem; at least one of each.

    largest: the largest difference that there can be. Intervals over seeds are cut at it; None where they would be all.
    """
    # sorted: the draws of a bootstrap follow the order
    problems = sorted({problem for of_seed in seeds for problem in of_seed})
    differences = [[of_seed[problem] for of_seed in seeds if problem in of_seed] for problem in problems]
    sums, counts = [sum(values) for values in differences], [len(values) for values in differences]
    # where all problems differ alike every draw is the same, which says nothing about the uncertainty
    alike = len({total / n for total, n in zip(sums, counts, strict=True)}) < 2
    # whole problems are drawn again: a problem's seeds are not independent
    ci95 = None if alike else clustered_mean(sums, counts)
    means = [fmean(of_seed.values()) for of_seed in seeds]
    return replace(
        _compared([value for values in differences for value in values], ci95),
        sizes=[len(of_seed) for of_seed in seeds],
        over_seeds=_cut(t_interval(means), largest) if len(means) >= MIN_SEEDS else None,
        over_both=_cut(two_way_bootstrap_interval(seeds), largest),
    )


def _cut(interval: Interval, largest: float | None) -> Interval:
    if interval is None or largest is None:
        return interval
    low, high = max(interval[0], -largest), min(interval[1], largest)
    return None if (low, high) == (-largest, largest) else (low, high)


def _compared(differences: Sequence[float], ci95: tuple[float, float] | None) -> PairedScores:
    return PairedScores(
        n=len(differences),
        difference=sum(differences) / len(differences),
        ci95=ci95,
        higher=sum(difference > 0 for difference in differences),
        lower=sum(difference < 0 for difference in differences),
    )


def mcnemar(counts: Paired) -> float:
    """Return the exact two-sided p-value of McNemar's test; 1 when no problem is discordant.

    Under the null hypothesis each discordant problem is as likely to be ours as theirs. Source: Q. McNemar (1947),
    "Note on the sampling error of the difference between correlated proportions or percentages", in its exact form.
    """
    if not counts.discordant:
        return 1.0
    from scipy.stats import binomtest  # half a second to import: not before it is needed

    return float(binomtest(counts.ours_only, counts.discordant, 0.5).pvalue)


def difference_interval(counts: Paired, confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the bootstrap percentile interval of the difference in a rate, drawing problems again with their pair.

    None when no problem is discordant: then every draw gives 0, which says nothing about the uncertainty. A problem
    adds 1, -1 or 0 to the difference, so drawing n problems with replacement is one multinomial draw of how many add
    which. Source: Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 2.2. The same counts
    always give the same interval.
    """
    if not counts.discordant:
        return None
    shares = np.array([counts.ours_only, counts.theirs_only, counts.both + counts.neither]) / counts.n
    # a fixed seed: the same runs must give the same page
    draws = np.random.default_rng(0).multinomial(counts.n, shares, size=RESAMPLES)
    tail = (1 - confidence) / 2
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / counts.n, [tail, 1 - tail])
    return float(low), float(high)


def pooled_p(sums: Sequence[int]) -> float:
    """Return the exact two-sided p-value of no difference over several seeds.

    `sums` has the outcomes gained less those lost of each problem, over all its seeds. A problem's seeds are not
    independent, so under the null hypothesis they change sides together: each sum is as likely as its negative. With
    one seed this is McNemar's test. Source: E. J. G. Pitman (1937), "Significance tests which may be applied to
    samples from any populations", for paired samples.
    """
    sizes = [abs(total) for total in sums if total]
    # the exact distribution of the total, one convolution a problem: its support has sum(sizes) points, where trying
    # all 2**n sign changes would be out of reach
    chances: NDArray[np.floating[Any]] = np.ones(1)
    for size in sizes:
        chances = np.convolve(chances, [0.5, *[0.0] * (2 * size - 1), 0.5])
    # chances[i] is that of a total of i - sum(sizes)
    tail = chances[: sum(sizes) - abs(sum(sums)) + 1].sum()
    return min(1.0, 2 * float(tail))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for how many there are, in the order given.

    Source: S. Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        # an adjusted value is never below that of a smaller p: the procedure stops at the first that is not rejected
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted

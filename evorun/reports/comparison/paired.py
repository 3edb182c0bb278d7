"""Two runs on the same problems: the difference in accuracy or in a score, and whether it could be chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evorun.runs.statistics import mean_interval

RESAMPLES = 9_999
"""Of the bootstrap (ours): the bounds move by less than a tenth of a standard error from seed to seed."""


@dataclass(frozen=True)
class Paired:
    """How two runs, `ours` and `theirs`, did on the same problems."""

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
        """Accuracy of ours less accuracy of theirs, in [-1, 1]. Raises ZeroDivisionError without problems."""
        return (self.ours_only - self.theirs_only) / self.n


def paired(ours: Sequence[bool], theirs: Sequence[bool]) -> Paired:
    """Count the outcomes of two runs on the same problems in the same order. Raises ValueError on unequal lengths."""
    pairs = list(zip(ours, theirs, strict=True))
    return Paired(*(pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))))


@dataclass(frozen=True)
class PairedScores:
    """How a score of two runs, `ours` and `theirs`, compares on the same problems."""

    n: int
    difference: float
    """Mean of ours less mean of theirs."""
    ci95: tuple[float, float] | None
    """Bootstrap interval (BCa) that draws problems again with their pair; None where all differ by the same amount."""
    higher: int
    """Problems on which ours is the higher one."""
    lower: int


def paired_scores(ours: Sequence[float], theirs: Sequence[float]) -> PairedScores:
    """Compare a score on the same problems in the same order, at least one. Raises ValueError on unequal lengths."""
    differences = [our - their for our, their in zip(ours, theirs, strict=True)]
    return PairedScores(
        n=len(differences),
        difference=sum(differences) / len(differences),
        ci95=mean_interval(differences),
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
    """Return the bootstrap percentile interval of the difference in accuracy, drawing problems again with their pair.

    None when no problem is discordant: then every draw gives 0, which says nothing about the uncertainty. A problem
    adds 1, -1 or 0 to the difference, so drawing n problems with replacement is one multinomial draw of how many add
    which. Source: Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 2.2. The same counts
    always give the same interval.
    """
    if not counts.discordant:
        return None
    shares = np.array([counts.ours_only, counts.theirs_only, counts.both + counts.neither]) / counts.n
    draws = np.random.default_rng(0).multinomial(counts.n, shares, size=RESAMPLES)
    tail = (1 - confidence) / 2
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / counts.n, [tail, 1 - tail])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for how many there are, in the order given.

    Source: S. Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted

"""Means over seeds and problems, and differences paired by both: standard errors, intervals, tests and power.

The model: value = mean + seed + problem + rest, with independent random effects of seeds and problems, and a rest of
each run on each problem. Problems that several seeds share are crossed with them. Where each seed has problems of its
own, they are nested within seeds, and only the seeds' means are independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POWER = 0.8
"""Probability of finding a difference, by convention: J. Cohen (1988), "Statistical Power Analysis", chapter 2."""

LEVEL = 0.05
"""Two-sided level of tests, by convention."""

_TOLERANCE = 1e-12
"""Standard errors below it are rounding."""

_HALVINGS = 200
"""Steps of a bisection (ours): p-values down to 1e-60 have all their digits."""


@dataclass(frozen=True)
class CrossedMean:
    """A mean of values by seed and problem, for other seeds and other problems; of a single seed, other problems."""

    mean: float
    """Each value has the same weight."""
    standard_error: float
    seeds: int
    problems: int
    """Different problems; all of them together where each seed has its own."""
    seed_weight: float
    """Weight, in [0, 1], of the degrees of freedom of the seeds against those of the problems."""
    is_nested: bool = False
    """True where each seed has problems of its own."""

    def quantile(self, probability: float) -> float:
        """Return the quantile of the standardised mean at a probability.

        It is a weighted mean of Student's quantiles for the seeds and for the problems, as for two means of unequal
        variances. Source: Cochran and Cox (1950), "Experimental Designs", section 4.14. With two or three seeds that
        do not differ it is too wide (95 % intervals cover up to 99 %). Satterthwaite's degrees of freedom are not the
        remedy: where two seeds differ, they cover down to 86 % (`scripts/measure_coverage.py 2000 satterthwaite`).
        """
        from scipy.special import stdtrit

        by_seeds = float(stdtrit(self.seeds - 1, probability)) if self.seed_weight else 0.0
        by_problems = float(stdtrit(self.problems - 1, probability)) if self.seed_weight < 1 else 0.0
        return self.seed_weight * by_seeds + (1 - self.seed_weight) * by_problems

    def interval(self, confidence: float = 1 - LEVEL) -> tuple[float, float]:
        """Return the two-sided confidence interval of the mean."""
        half = self.quantile((1 + confidence) / 2) * self.standard_error
        return self.mean - half, self.mean + half

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of the hypothesis that the mean is at most `bound`."""
        t = (self.mean - bound) / self.standard_error
        low, high = 0.0, 0.5
        for _ in range(_HALVINGS):  # bisection, since the quantile is monotone and has no inverse in closed form
            middle = (low + high) / 2
            low, high = (middle, high) if -self.quantile(middle) > abs(t) else (low, middle)
        return high if t > 0 else 1 - high

    def p_differs(self) -> float:
        """Return the two-sided p-value of the hypothesis that the mean is 0; it goes with `interval`."""
        above = self.p_above(0.0)
        return 2 * min(above, 1 - above)

    def smallest_difference(self, power: float = POWER, level: float = LEVEL) -> float:
        """Return the true mean, apart from 0, that such data show at a two-sided level with a probability of `power`.

        It takes the standard error as that of all such data. Source: J. Cohen (1988), "Statistical Power Analysis for
        the Behavioral Sciences", chapter 2.
        """
        return (self.quantile(1 - level / 2) + self.quantile(power)) * self.standard_error


def crossed_mean(table: NDArray[np.float64]) -> CrossedMean | None:
    """Return the mean of values [seeds, problems], NaN where one is missing; None where they do not vary enough.

    That is below two problems, and where the standard error would be 0. The variance of the mean is that between seeds
    plus that between problems less that of the rest, which both contain; it is at least the larger of the two. The
    weight of the seeds' degrees of freedom is their share in the sum of both. One seed's values tell of problems only.
    Where no problem has two seeds, problems are nested: the variance is that between the seeds.

    Measured coverage of 95 % intervals: scripts/measure_coverage.py. Sources: Searle, Casella and McCulloch (1992),
    "Variance Components", the crossed random model without repetition; A. B. Owen (2007), "The pigeonhole bootstrap",
    for missing values.
    """
    table = table[~np.isnan(table).all(axis=1)]
    table = table[:, ~np.isnan(table).all(axis=0)]
    seeds, problems = table.shape
    if problems < 2:
        return None
    known = ~np.isnan(table)
    n, mean = int(known.sum()), float(table[known].mean())
    errors = np.where(known, table - mean, 0.0)
    by_seed, by_problem = errors.sum(axis=1), errors.sum(axis=0)
    of_problems = float((by_problem**2).sum()) / n**2 * problems / (problems - 1)
    of_seeds = float((by_seed**2).sum()) / n**2 * seeds / (seeds - 1) if seeds > 1 else 0.0
    is_nested = seeds > 1 and known.sum(axis=0).max() == 1
    if seeds == 1:
        variance, weight = of_problems, 0.0
    elif is_nested:
        variance, weight = of_seeds, 1.0
    else:
        rest = errors - (by_seed / known.sum(axis=1))[:, None] - by_problem / known.sum(axis=0)
        degrees = n - seeds - problems + 1
        of_rest = float((rest[known] ** 2).sum()) / degrees / n if degrees > 0 else 0.0
        variance = max(of_seeds + of_problems - of_rest, of_seeds, of_problems)
        weight = of_seeds / (of_seeds + of_problems) if variance else 0.0
    if variance**0.5 <= _TOLERANCE:
        return None
    return CrossedMean(mean, variance**0.5, seeds, problems, weight, bool(is_nested))


def tabulate(seeds: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """Return values by problem, given for each seed, as a table [seeds, problems] with NaN for missing ones."""
    problems = sorted({problem for values in seeds for problem in values})
    table = np.full((len(seeds), len(problems)), np.nan)
    for row, values in zip(table, seeds, strict=True):
        row[:] = [values.get(problem, np.nan) for problem in problems]
    return table

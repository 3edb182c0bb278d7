"""Measure how often the 95 % intervals over seeds and problems (`evorun.runs.crossed`) contain the true mean.

Usage: python scripts/measure_coverage.py [DATA_SETS [PROBLEMS ...]] [KIND]

DATA_SETS: how many a cell has, by default 400. PROBLEMS: how many a data set has, as in `400 4 8`; by default 8 to 500.

KIND: of interval, by default evorun's own; `satterthwaite`, `problems`, `seeds`, `narrower` or `coin`.

With `satterthwaite` the quantile is Student's with the degrees of freedom of F. E. Satterthwaite (1946), "An
approximate distribution of estimates of variance components", for the sum of the two variances, in place of evorun's
own. With `problems` the interval is the bootstrap over problems alone, with `seeds` Student's over the seeds alone:
a comparison shows both beside it. With `narrower` it is evorun's own in those data sets where it is narrower than that
over the seeds alone; the others do not count. The data sets are the same.

With `coin` the interval is that of judge agreement: the share of decisive duels that the better one won, pooled over
problems, which are drawn again. The judge is a coin, so that the true share is one half.

Data sets are drawn with known variances. Continuous values: mean + seed + problem + rest, all normal; the variance of
the rest is 1. Rates: right or wrong, with these effects on the logit; a difference is that of two methods, which share
the problems' difficulty and each have effects of their own. Prints the coverage for each number of seeds (rows) and
problems (columns), and with one seed; an asterisk marks what is outside .93 to .97, beyond the error of the simulation.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, stdtrit

from evorun.runs.crossed import crossed_mean
from evorun.runs.statistics import clustered_mean, t_interval

SEEDS = (1, 2, 3, 5, 10)
PROBLEMS = (8, 20, 60, 200, 500)
"""By default."""
TARGET = (0.93, 0.97)
RESAMPLES = 999
Interval = Callable[[NDArray[np.float64]], tuple[float, float] | None]
"""Of values [seeds, problems]; None where they do not vary."""


class World(NamedTuple):
    """Variances of what values consist of, and the kind of values."""

    name: str
    kind: str
    """continuous | rate | difference of rates."""
    seed: float
    problem: float
    effect: float = 0.5
    """Mean; of rates the mean logit, of differences that of the first method."""


WORLDS = (
    World("continuous, no seed effect", "continuous", 0.0, 0.5),
    World("continuous, small seed effect", "continuous", 0.01, 0.3),
    World("continuous, large seed effect", "continuous", 0.2, 0.3),
    World("continuous, very large seed effect", "continuous", 1.0, 0.3),
    World("rate, no seed effect", "rate", 0.0, 2.0),
    World("rate, seed effect", "rate", 0.1, 2.0),
    World("difference of rates, no seed effect", "difference", 0.0, 2.0),
    World("difference of rates, small seed effect", "difference", 0.05, 2.0),
    World("difference of rates, large seed effect", "difference", 0.5, 2.0),
    World("difference of rates, very large seed effect", "difference", 2.0, 2.0),
)


def draw(world: World, rng: np.random.Generator, seeds: int, problems: int) -> NDArray[np.float64]:
    """Return values [seeds, problems]; a single seed has no effect, since nothing tells it from the mean."""

    def effects(problem: float) -> NDArray[np.float64]:
        seed = world.seed * (seeds > 1)
        by_seed, by_problem = rng.standard_normal((seeds, 1)), rng.standard_normal((1, problems))
        return np.asarray(np.sqrt(seed) * by_seed + np.sqrt(problem) * by_problem)

    def right(logits: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(rng.random((seeds, problems)) < expit(logits), dtype=float)

    if world.kind == "continuous":
        return np.asarray(world.effect + effects(world.problem) + rng.standard_normal((seeds, problems)))
    if world.kind == "rate":
        return right(world.effect + effects(world.problem))
    shared = np.sqrt(world.problem / 2) * rng.standard_normal(problems)
    ours, theirs = (right(logit + shared + effects(world.problem / 2)) for logit in (world.effect, 0.0))
    return np.asarray(ours - theirs)


def true_mean(world: World, seeds: int) -> float:
    """Return the mean over all seeds and problems, by quadrature over the normal effects."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)

    def rate(logit: float, variance: float) -> float:
        return float((weights * expit(logit + np.sqrt(variance) * points)).sum() / weights.sum())

    variance = world.problem + world.seed * (seeds > 1)
    if world.kind == "continuous":
        return world.effect
    return rate(world.effect, variance) - (rate(0.0, variance) if world.kind == "difference" else 0.0)


def over_both(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return evorun's 95 % interval over seeds and problems."""
    found = crossed_mean(values)
    return None if found is None else found.interval()


def over_problems(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval over problems, with the seeds as they are."""
    if len(np.unique(values.mean(axis=0))) == 1:
        return None
    return clustered_mean(values.sum(axis=0).tolist(), [len(values)] * values.shape[1], RESAMPLES)


def over_seeds(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return Student's 95 % interval over the seeds, with the problems as they are."""
    return t_interval(values.mean(axis=1).tolist())


def is_narrower(values: NDArray[np.float64]) -> bool:
    """Tell whether evorun's interval is narrower than that over the seeds alone; no where either is missing."""
    both, seeds = over_both(values), over_seeds(values)
    return both is not None and seeds is not None and both[1] - both[0] < seeds[1] - seeds[0]


def by_satterthwaite(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean by Satterthwaite's degrees of freedom."""
    found = crossed_mean(values)
    if found is None:
        return None
    shares = ((found.seed_weight, found.seeds - 1), (1 - found.seed_weight, found.problems - 1))
    degrees = 1 / sum(share**2 / own for share, own in shares if share)
    half = float(stdtrit(degrees, 0.975)) * found.standard_error
    return found.mean - half, found.mean + half


INTERVALS: dict[str, Interval] = {
    "": over_both,
    "satterthwaite": by_satterthwaite,
    "problems": over_problems,
    "seeds": over_seeds,
    "narrower": over_both,
}


def coverage(
    world: World, seeds: int, problems: int, repetitions: int, interval: Interval, *, narrower: bool = False
) -> float:
    """Return the share of data sets whose interval contains the true mean; one without an interval does not.

    narrower: count only those where evorun's interval is narrower than that over the seeds; NaN without any.
    """
    rng, mean = np.random.default_rng([seeds, problems]), true_mean(world, seeds)
    hits = []
    for _ in range(repetitions):
        values = draw(world, rng, seeds, problems)
        if not narrower or is_narrower(values):
            low, high = interval(values) or (np.nan, np.nan)
            hits.append(low <= mean <= high)
    return float(np.mean(hits)) if hits else np.nan


DUELED_PROBLEMS = (4, 8, 15, 30, 60)
"""Problems with a decisive duel between a right and a wrong candidate."""
LIKENESS = (0.0, 0.05)
"""Correlations of two duels of the same problem: 0 for a coin; above, as where a judge errs by problem."""


def coin_coverage(problems: int, likeness: float, repetitions: int) -> float:
    """Return the share of data sets in which the interval of judge agreement holds one half."""
    rng = np.random.default_rng(problems)
    hits = 0
    for _ in range(repetitions):
        duels = 1 + rng.negative_binomial(5, 5 / 44, problems)  # 40 a problem, from a few to a hundred
        each = (1 - likeness) / (2 * likeness) if likeness else np.inf
        shares = rng.beta(each, each, problems) if likeness else np.full(problems, 0.5)
        low, high = clustered_mean(rng.binomial(duels, shares).tolist(), duels.tolist(), RESAMPLES) or (np.nan, np.nan)
        hits += low <= 0.5 <= high
    return hits / repetitions


def main(arguments: Sequence[str]) -> None:
    """Print a table for each world."""
    numbers = [int(word) for word in arguments if word.isdigit()]
    repetitions, *sizes = numbers or [400]
    sizes = sizes or [*PROBLEMS]
    if "coin" in arguments:
        print("correlation" + "".join(f"{problems:>8}" for problems in DUELED_PROBLEMS) + "  problems")
        for likeness in LIKENESS:
            found = [coin_coverage(problems, likeness, repetitions) for problems in DUELED_PROBLEMS]
            print(f"{likeness:>11.2f}" + "".join(f"{share:>8.3f}" for share in found))
        return
    kind = next((word for word in arguments if not word.isdigit()), "")
    counted = {"narrower": kind == "narrower"}
    slack = 2 * np.sqrt(0.05 * 0.95 / repetitions)
    for world in WORLDS:
        print(f"{world.name} (variances: seed {world.seed:g}, problem {world.problem:g})")
        print("seeds  " + "".join(f"{problems:>8}" for problems in sizes) + "  problems")
        for seeds in SEEDS:
            found = [coverage(world, seeds, size, repetitions, INTERVALS[kind], **counted) for size in sizes]
            marks = ["*" if not TARGET[0] - slack <= share <= TARGET[1] + slack else " " for share in found]
            print(f"{seeds:>5}  " + "".join(f"{share:>7.3f}{mark}" for share, mark in zip(found, marks, strict=True)))
        print()


if __name__ == "__main__":
    main(sys.argv[1:])

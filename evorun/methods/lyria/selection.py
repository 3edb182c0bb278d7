"""Lyria's experience pool and selector: pure functions on populations (sections 4.1.3 and 4.1.5)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from evorun.methods.lyria.breeding import Member


@dataclass
class ExperiencePool:
    """All members so far, one an answer: EP of section 4.1.3, which is a set."""

    _members: dict[str, Member] = field(default_factory=dict)

    def add(self, members: Iterable[Member]) -> None:
        """Take members in; of those with the same answer the first stays."""
        for member in members:
            self._members.setdefault(member.key, member)

    def best(self, count: int) -> list[Member]:
        """Return the fittest members, best first; of equally fit ones the earlier first."""
        return sorted(self._members.values(), key=lambda member: -member.fitness)[:count]


def replay(population: Sequence[Member], pool: ExperiencePool, rate: float) -> list[Member]:
    """Replace the worst by the best of the pool, floor(rate * n) of them at most, each only by a fitter one (4.1.3)."""
    worst_first = sorted(population, key=lambda member: member.fitness)
    count = int(rate * len(population) + 1e-9)  # 0.29 * 100 is a little less than 29
    # The pool's best meet the population's worst pairwise; once one is not fitter, no later one is.
    for index, member in enumerate(pool.best(count)):
        if member.fitness > worst_first[index].fitness:
            worst_first[index] = member
    return worst_first


def select(population: Sequence[Member], elites: int, rng: np.random.Generator) -> list[Member]:
    """Return a mating pool of the same size: the `elites` fittest, then winners of tournaments of two (4.1.5)."""
    best_first = sorted(population, key=lambda member: -member.fitness)
    kept = best_first[:elites]
    pairs = rng.integers(len(population), size=(len(population) - len(kept), 2)).tolist()
    # A tie goes to the second: `max` returns the first of equals, and y comes first.
    return [*kept, *(max(population[y], population[x], key=lambda member: member.fitness) for x, y in pairs)]

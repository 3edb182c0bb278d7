"""The simulated model on travelling salesman problems, whose shortest routes it knows.

Decisions are the places of the route when it answers from scratch, and the edges of the shortest route when it revises:
each is adopted by a move that breaks no other.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from evorun.tasks.base import Problem
from evorun.tasks.puzzles.simulator import PuzzleSimulator, SolvedPuzzle
from evorun.tasks.puzzles.task import Puzzle
from evorun.tasks.tsp.routes import as_route, as_text

# Probability, times that of a wrong decision, that an answer leaves a city out (ours)
_LOSES_A_CITY = 0.2


class SolvedTour(SolvedPuzzle):
    """A problem with a shortest route."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        self._route = as_route(solution)
        self._next = dict(pairwise(self._route))

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Return the shortest route, disturbed once for each place that is wrong with probability 1 - `skill`."""
        wrong = min(1.0, max(0.0, 1 - skill))
        route = list(self._route)
        for _ in range(int(rng.binomial(len(route) - 2, wrong))):
            _disturb(route, rng)
        if rng.random() < _LOSES_A_CITY * wrong:
            lost, twice = rng.choice(np.arange(1, len(route) - 1), 2, replace=False).tolist()
            if rng.random() < 0.5:
                del route[lost]
            else:
                route[lost] = route[twice]
        return as_text(route)

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Begin with the best answer (with probability `choice`) or any; take the others' edges, mend and lose some."""
        shown = [as_route(answer) for answer in answers]
        scores = [self.fitness(answer) for answer in answers]
        best = rng.random() < choice
        base = scores.index(max(scores)) if best else int(rng.integers(len(shown)))
        seen = {edge for route in shown for way in (route, route[::-1]) for edge in pairwise(way)}
        # Repeated cities stay where they are not mended, so that revisions can be wrong in this way too.
        tour = _without_repeats(shown[base], repair, rng)
        # Only right edges are taken over, so whoever chooses no better than chance must take over none.
        known = max(0.0, 2 * choice - 1)
        for here, there in pairwise(self._route):
            if rng.random() < max(known if (here, there) in seen else 0.0, repair):
                self._adopt(tour, here, there)
        start = tour.index(0)
        route = [*tour[start:], *tour[:start], 0]
        # A tour is as good either way round: it is given in the direction that shares more edges with the known one.
        route = max(route, route[::-1], key=lambda way: sum(self._next[u] == v for u, v in pairwise(way)))
        for _ in range(int(rng.binomial(len(self._route) - 2, slip))):
            _disturb(route, rng)
        return as_text(route)

    def _adopt(self, tour: list[int], here: int, there: int) -> None:
        """Make two cities neighbours on a tour, given as a cycle, where the second rightly follows the first.

        `there` takes along what rightly follows it, in either direction, and lands on the side of `here` where what
        rightly precedes that does not stand. Where no city stands twice, no other right edge is lost.
        """
        edge = (here, there)
        if here not in tour or edge in pairwise([*tour, tour[0]]) or edge in pairwise([tour[0], *tour[::-1]]):
            return
        block = [there]
        if there in tour:
            _turn(tour, tour.index(there))
            if self._next[there] == tour[-1]:
                tour[1:] = tour[:0:-1]
            while len(block) < len(tour) and self._next[block[-1]] == tour[len(block)]:
                block.append(tour[len(block)])
            if here in block:
                return
            del tour[: len(block)]
        _turn(tour, tour.index(here) + 1)
        if self._next[tour[0]] == here:
            tour[:-1] = tour[-2::-1]
        tour += block


class TspSimulator(PuzzleSimulator):
    """Decides a route place by place, or edge by edge."""

    solved = SolvedTour


def _turn(tour: list[int], first: int) -> None:
    tour[:] = [*tour[first:], *tour[:first]]


def _disturb(route: list[int], rng: np.random.Generator) -> None:
    """Reverse a stretch between the two ends, or swap two cities."""
    if len(route) < 4:
        return
    first, second = sorted(rng.choice(np.arange(1, len(route) - 1), 2, replace=False).tolist())
    if rng.random() < 0.5:
        route[first : second + 1] = route[first : second + 1][::-1]
    else:
        route[first], route[second] = route[second], route[first]


def _without_repeats(route: Sequence[int], repair: float, rng: np.random.Generator) -> list[int]:
    """Return the route as a cycle, without a city's later visits, each left out with probability `repair`."""
    seen: set[int] = set()
    kept = []
    for city in route[:-1]:
        if city not in seen or rng.random() >= repair:
            kept.append(city)
        seen.add(city)
    return kept

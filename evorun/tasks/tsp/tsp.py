"""The travelling salesman problem as methods see it, and the simulated model on it, which knows a shortest route.

Answers are city numbers separated by commas, `0,3,...,0`. Errors are `["missing", city]`, `["excess", distance]` and,
where there is neither, `["repeated", city]`. The simulated model's decisions are the places of the route when it
answers from scratch, and the edges of the shortest route when it revises: each is adopted by a move that breaks no
other.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.capabilities import Individual
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE_PAPER, Puzzle, PuzzleSimulator, SolvedPuzzle
from evorun.tasks.tsp import metrics, operators, routes
from evorun.tasks.tsp.metrics import EXCESS, MISSING, REPEATED
from evorun.tasks.tsp.routes import as_route, as_text

_CITIES_LINE = re.compile(rf"({MISSING}|{REPEATED})\s*+:?+\s*+([0-9][0-9,\s]*)", re.IGNORECASE)
_EXCESS_LINE = re.compile(rf"{EXCESS}\s*+:?+\s*+\+?([0-9]{{1,15}}(?:\.[0-9]{{1,15}})?)", re.IGNORECASE)


class Tsp(Puzzle):
    """Round trips from city 0. A problem's data: `cities`, `distances` (to two decimals), `coordinates` or null."""

    name = "tsp"
    scores = (
        *Puzzle.scores,
        Score(metrics.EXCESS_DISTANCE_MULTIPLIER, 0, 3, higher_is_better=False),
        Score(metrics.MISSING_CITIES, 0, None, higher_is_better=False),
        Score(PENALISED_SCORE_PAPER, 0, 100),
        Score(metrics.EXCESS_DISTANCE_MULTIPLIER_PAPER, -1, 3, higher_is_better=False),
    )
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Puzzle.prompt_folders)
    placeholder_synonyms: ClassVar[Mapping[str, str]] = {"distances": "instance"}

    def __init__(
        self, optima: Mapping[str, float], *, prompts: str | None = None, shown_reasoning_chars: int | None = None
    ):
        """optima: the shortest length for each problem id. The rest: see `Puzzle`."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._optima = optima

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the same text for a route and the same route backwards: distances are symmetric."""
        route = routes.as_route(response.answer or "0")
        return routes.as_text(min(route, route[::-1]))

    def puzzle_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return `cities`, `distances` (a line a city) and `coordinates` (the same; empty where there are none)."""
        data = problem.data
        distances = _table(data["distances"])
        return {
            "cities": data["cities"],
            "instance": distances,
            "distances": distances,
            "coordinates": _table(data["coordinates"] or ()),
        }

    def read_answer(self, problem: Problem, block: str) -> str:
        return routes.read(block, problem.data["cities"])

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a route through all cities, each order as likely."""
        return routes.as_text([0, *rng.permutation(np.arange(1, problem.data["cities"])).tolist(), 0])

    def measure(self, problem: Problem, answer: str | None) -> Grade:
        route = None if answer is None else routes.as_route(answer)
        return metrics.measure(problem.data["distances"], self._optima[problem.id], route)

    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        return metrics.findings(problem.data["distances"], self._optima[problem.id], routes.as_route(answer))

    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return lines `missing 3,5`, `repeated 4` and `excess 12.34`, each where there is such an error."""
        named = [(kind, routes.as_text(_cities(findings, kind))) for kind in (MISSING, REPEATED)]
        lines = [f"{kind} {cities}" for kind, cities in named if cities]
        lines += [f"{EXCESS} {value:.{routes.DECIMALS}f}" for kind, value in findings if kind == EXCESS]
        return "\n".join(lines)

    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Read such lines, in any order; None when there is none, or one that is something else.

        City 0 cannot be missing, and an excess of 0 is none.
        """
        named: dict[str, dict[int, None]] = {MISSING: {}, REPEATED: {}}
        excess = 0.0
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        for line in lines:
            if found := _CITIES_LINE.fullmatch(line):
                kind, cities = found[1].lower(), found[2].replace(",", " ").split()
                # Every route begins with city 0, so that it cannot be missing.
                first = 1 if kind == MISSING else 0
                if not all(len(city) < 10 and first <= int(city) < problem.data["cities"] for city in cities):
                    return None
                named[kind] |= dict.fromkeys(map(int, cities))
            elif found := _EXCESS_LINE.fullmatch(line):
                excess = round(float(found[1]), routes.DECIMALS)
            else:
                return None
        if not lines:
            return None
        errors = [[kind, city] for kind, cities in named.items() for city in cities]
        return (*errors, [EXCESS, excess]) if excess else tuple(errors)

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Return the child of ECO; see `operators`."""
        ours, theirs = first.response.answer, second.response.answer
        if ours is None or theirs is None:
            return first.response if theirs is None else second.response
        # Not "no errors": with a limit of 0, wrong routes have none either; see `operators`.
        if first.fitness >= 100 or second.fitness >= 100:
            return first.response if first.fitness >= 100 else second.response
        route = operators.crossover(routes.as_route(ours), routes.as_route(theirs), problem.data["cities"], rng)
        return self._child(route, first.response, second.response)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return the outcome of EMO; see `operators`."""
        answer, missing = individual.response.answer, _cities(individual.errors.findings, MISSING)
        if answer is None or not missing:
            return individual.response
        return self._child(operators.mutate(routes.as_route(answer), missing, rng), individual.response)

    def _child(self, route: Sequence[int], *parents: Response) -> Response:
        answer = routes.as_text(route)
        return next((parent for parent in parents if parent.answer == answer), None) or self.response(answer)


def _cities(findings: Sequence[Any], kind: str) -> list[int]:
    return [value for own, value in findings if own == kind]


def _table(rows: Sequence[Sequence[float]]) -> str:
    """Return a line a row, with two decimals unless all numbers are whole."""
    whole = all(float(value).is_integer() for row in rows for value in row)
    decimals = 0 if whole else routes.DECIMALS
    return "\n".join(" ".join(f"{value:.{decimals}f}" for value in row) for row in rows)


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

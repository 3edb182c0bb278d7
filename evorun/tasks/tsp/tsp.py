"""The travelling salesman problem as methods see it, and the simulated model on it, which knows a shortest route.

Answers are city numbers separated by commas, `0,3,...,0`. Errors are `["missing", city]`, `["excess", distance]` and,
where there is neither, `["repeated", city]`. The simulated model decides the positions of the route when it
answers from scratch, and the edges of the shortest route when it revises: it adopts each by a move that breaks no
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
from evorun.tasks.tsp.routes import format_route, parse_route

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

    def __init__(
        self, optima: Mapping[str, float], *, prompts: str | None = None, shown_reasoning_chars: int | None = None
    ):
        """optima: the shortest length by problem id. Others: see `Puzzle`."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._optima = optima

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the same text for a route in either direction: distances are symmetric."""
        route = routes.parse_route(response.answer or "0")
        return routes.format_route(min(route, route[::-1]))

    def puzzle_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return `cities`, `instance` (distances, one line per city) and `coordinates` (likewise, or empty)."""
        data = problem.data
        coordinates = _table(data["coordinates"] or ())
        return {"cities": data["cities"], "instance": _table(data["distances"]), "coordinates": coordinates}

    def read_answer(self, problem: Problem, block: str) -> str:
        return routes.read(block, problem.data["cities"])

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a uniformly random route through all cities."""
        return routes.format_route([0, *rng.permutation(np.arange(1, problem.data["cities"])).tolist(), 0])

    def measure(self, problem: Problem, answer: str | None) -> Grade:
        route = None if answer is None else routes.parse_route(answer)
        return metrics.measure(problem.data["distances"], self._optima[problem.id], route)

    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        return metrics.findings(problem.data["distances"], self._optima[problem.id], routes.parse_route(answer))

    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return lines `missing 3,5`, `repeated 4` and `excess 12.34`, each only where there is such an error."""
        named = [(kind, routes.format_route(_cities(findings, kind))) for kind in (MISSING, REPEATED)]
        lines = [f"{kind} {cities}" for kind, cities in named if cities]
        lines += [f"{EXCESS} {value:.{routes.DECIMALS}f}" for kind, value in findings if kind == EXCESS]
        return "\n".join(lines)

    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Read lines as `describe` returns them, in any order; None without any, or with any other line.

        City 0 cannot be missing, and an excess of 0 is no error.
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
        first_answer, second_answer = first.response.answer, second.response.answer
        if first_answer is None or second_answer is None:
            return first.response if second_answer is None else second.response
        # Not "no errors": with a limit of 0, wrong routes have none either; see `operators`.
        if first.fitness >= 100 or second.fitness >= 100:
            return first.response if first.fitness >= 100 else second.response
        route = operators.crossover(
            routes.parse_route(first_answer), routes.parse_route(second_answer), problem.data["cities"], rng
        )
        return self._child(route, first.response, second.response)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return the outcome of EMO; see `operators`."""
        answer, missing = individual.response.answer, _cities(individual.errors.findings, MISSING)
        if answer is None or not missing:
            return individual.response
        return self._child(operators.mutate(routes.parse_route(answer), missing, rng), individual.response)

    def _child(self, route: Sequence[int], *parents: Response) -> Response:
        answer = routes.format_route(route)
        return next((parent for parent in parents if parent.answer == answer), None) or self.response(answer)


def _cities(findings: Sequence[Any], kind: str) -> list[int]:
    return [value for error_kind, value in findings if error_kind == kind]


def _table(rows: Sequence[Sequence[float]]) -> str:
    """Return one line per row, with two decimals unless all numbers are whole."""
    whole = all(float(value).is_integer() for row in rows for value in row)
    decimals = 0 if whole else routes.DECIMALS
    return "\n".join(" ".join(f"{value:.{decimals}f}" for value in row) for row in rows)


# Probability that an answer omits a city, relative to that of a wrong decision (ours)
_OMISSION_RATE = 0.2


class SolvedTour(SolvedPuzzle):
    """A problem with a shortest route."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        self._route = parse_route(solution)
        self._next = dict(pairwise(self._route))

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Return the shortest route, disturbed once per wrong position; each is wrong with probability 1 - `skill`."""
        wrong = min(1.0, max(0.0, 1 - skill))
        route = list(self._route)
        for _ in range(int(rng.binomial(len(route) - 2, wrong))):
            _reverse_or_swap(route, rng)
        if rng.random() < _OMISSION_RATE * wrong:
            lost, twice = rng.choice(np.arange(1, len(route) - 1), 2, replace=False).tolist()
            if rng.random() < 0.5:
                del route[lost]
            else:
                route[lost] = route[twice]
        return format_route(route)

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Begin with the best answer (with probability `choice`) or any; adopt others' edges, repair and lose some."""
        shown = [parse_route(answer) for answer in answers]
        scores = [self.fitness(answer) for answer in answers]
        best = rng.random() < choice
        base = scores.index(max(scores)) if best else int(rng.integers(len(shown)))
        seen = {edge for route in shown for way in (route, route[::-1]) for edge in pairwise(way)}
        # Repeated cities stay unless repaired, so that revisions can be wrong in this way, too.
        tour = _drop_repeats(shown[base], repair, rng)
        # Only right edges are adopted, so a model that chooses no better than chance must adopt none.
        known = max(0.0, 2 * choice - 1)
        for here, there in pairwise(self._route):
            if rng.random() < max(known if (here, there) in seen else 0.0, repair):
                self._adopt(tour, here, there)
        start = tour.index(0)
        route = [*tour[start:], *tour[:start], 0]
        # Both directions of a tour are equally good: return the one that shares more edges with the known tour.
        route = max(route, route[::-1], key=lambda way: sum(self._next[u] == v for u, v in pairwise(way)))
        for _ in range(int(rng.binomial(len(self._route) - 2, slip))):
            _reverse_or_swap(route, rng)
        return format_route(route)

    def share_right(self, answer: str) -> float:
        """Return the share of the known route's edges that a route has, in either direction."""
        route = parse_route(answer)
        edges = {frozenset(edge) for edge in pairwise(route)}
        return sum(frozenset(edge) in edges for edge in pairwise(self._route)) / (len(self._route) - 1)

    def _adopt(self, tour: list[int], here: int, there: int) -> None:
        """Make two cities neighbours on a tour, given as a cycle, where the second rightly follows the first.

        `there` moves with its right successors, in either direction, to the side of `here` away from the right
        predecessor of `here`. Where no city stands twice, no other right edge is lost.
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
    """Decides a route position by position, or edge by edge."""

    solved = SolvedTour


def _turn(tour: list[int], first: int) -> None:
    tour[:] = [*tour[first:], *tour[:first]]


def _reverse_or_swap(route: list[int], rng: np.random.Generator) -> None:
    """Reverse a stretch between the two ends, or swap two cities."""
    if len(route) < 4:
        return
    first, second = sorted(rng.choice(np.arange(1, len(route) - 1), 2, replace=False).tolist())
    if rng.random() < 0.5:
        route[first : second + 1] = route[first : second + 1][::-1]
    else:
        route[first], route[second] = route[second], route[first]


def _drop_repeats(route: Sequence[int], repair: float, rng: np.random.Generator) -> list[int]:
    """Return the route as a cycle; drop each repeated visit with probability `repair`."""
    seen: set[int] = set()
    kept = []
    for city in route[:-1]:
        if city not in seen or rng.random() >= repair:
            kept.append(city)
        seen.add(city)
    return kept

"""The task as methods see it: what the travelling salesman problem adds to a puzzle.

Answers are city numbers separated by commas, `0,3,...,0`. Errors are `["missing", city]`, `["excess", distance]` and,
where there is neither, `["repeated", city]`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.capabilities import Individual
from evorun.tasks.puzzles.task import PENALISED_SCORE_PAPER, Puzzle
from evorun.tasks.tsp import metrics, operators, routes
from evorun.tasks.tsp.metrics import EXCESS, MISSING, REPEATED

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

"""Problems for the tests, and what is right about routes, worked out from the paper's formulas in exact hundredths."""

import os
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.tsp.tsp import Tsp

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "puzzles" / "tsplib.jsonl"

Matrix = list[list[int]]
"""Distances in hundredths."""


def tsplib_records() -> list[dict[str, Any]]:
    if not TEST_DATA.is_file():
        pytest.skip(f"needs {TEST_DATA.name}; set EVORUN_TEST_DATA to the folder of the test data")
    return [msgspec.json.decode(line) for line in TEST_DATA.read_bytes().splitlines()]


def symmetric(cities: int, values: Sequence[int]) -> Matrix:
    matrix = [[0] * cities for _ in range(cities)]
    for (u, v), value in zip(combinations(range(cities), 2), values, strict=True):
        matrix[u][v] = matrix[v][u] = value
    return matrix


@st.composite
def matrices(draw: st.DrawFn, smallest: int = 3, largest: int = 6, high: int = 10_000) -> Matrix:
    cities = draw(st.integers(smallest, largest))
    pairs = cities * (cities - 1) // 2
    values = draw(st.lists(st.integers(0, high), min_size=pairs, max_size=pairs))
    return symmetric(cities, values if any(values[: cities - 1]) else [1, *values[1:]])


def walk(matrix: Sequence[Sequence[int]], route: Sequence[int]) -> int:
    return sum(matrix[u][v] for u, v in pairwise(route))


def shortest(matrix: Matrix) -> int:
    return _shortest(tuple(map(tuple, matrix)))


@lru_cache(maxsize=16)
def _shortest(matrix: tuple[tuple[int, ...], ...]) -> int:
    return min(walk(matrix, (0, *order, 0)) for order in permutations(range(1, len(matrix))))


class Expected(NamedTuple):
    correct: bool
    multiplier: Fraction
    missing: list[int]
    excess: int
    """Hundredths."""
    score: Fraction


def expected(matrix: Matrix, route: Sequence[int]) -> Expected:
    """Section 3.3, with the decisions that the task's module states."""
    n, best, used = len(matrix), shortest(matrix), walk(matrix, route)
    left_out = [city for city in range(n) if city not in route]
    multiplier = max(Fraction(0), min(Fraction(3), Fraction(used - best, best)))
    correct = used == best and sorted(route[1:]) == list(range(n))
    score = 100 * min(1 - multiplier / 3, 1 - Fraction(len(left_out), n))
    if score == 100 and not correct:
        score = 100 * (1 - Fraction(1, n))
    return Expected(correct, multiplier, left_out, max(0, used - best), score)


def problem_of(matrix: Matrix, name: str = "p") -> Problem:
    distances = [[value / 100 for value in row] for row in matrix]
    data = {"cities": len(matrix), "distances": distances, "coordinates": None}
    return Problem(id=name, stratum="", data=data)


TEMPLATE = Tsp({})


def task_for(matrix: Matrix) -> Tsp:
    task = Tsp.__new__(Tsp)  # compiling the prompts for every example would take most of the time
    task.__dict__.update(TEMPLATE.__dict__, _optima={"p": shortest(matrix) / 100})
    return task


def individual(answer: str | None, fitness: float = 50.0, missing: Sequence[int] = ()) -> Individual:
    findings = (*(["missing", city] for city in missing), ["excess", 1.5])
    return Individual(
        response=Response(text="", answer=answer), fitness=fitness, errors=Diagnosis(text="x", findings=findings)
    )

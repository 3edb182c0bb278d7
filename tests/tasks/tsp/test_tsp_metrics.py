"""Metrics and errors against the formulas, in exact arithmetic."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tsp_fixture import Matrix, expected, matrices, problem_of, shortest, symmetric, task_for, walk

from evorun.runs.candidates import Response
from evorun.tasks.tsp import metrics

NO_TOOLS: Any = None
SQUARE = symmetric(4, [100, 141, 100, 100, 141, 100])  # around a square of side 1: the optimum is 0,1,2,3,0


@st.composite
def answered(draw: st.DrawFn) -> tuple[Matrix, list[int]]:
    """Routes of all kinds: permutations, shortened, with repeats, of any length that can be read."""
    matrix = draw(matrices(high=draw(st.sampled_from([3, 10_000]))))
    n = len(matrix)
    inner = draw(
        st.one_of(
            st.permutations(range(1, n)),
            st.permutations(range(1, n)).map(lambda order: order[1:]),
            st.lists(st.integers(0, n - 1), max_size=4 * n - 2),
        )
    )
    return matrix, [0, *inner, 0]


def measured(matrix: Matrix, route: list[int] | None) -> tuple[bool, dict[str, float]]:
    grade = task_for(matrix).measure(problem_of(matrix), None if route is None else ",".join(map(str, route)))
    return bool(grade.correct), grade.scores


def test_metrics_are_the_formulas() -> None:
    rng = np.random.default_rng(0)
    for cities in (3, 4, 5, 6, 7):
        for high in (3, 10_000):
            matrix = symmetric(cities, rng.integers(1, high, cities * (cities - 1) // 2).tolist())
            for number in range(120):
                kind = number % 3
                inner = rng.permutation(np.arange(1, cities))
                if kind:
                    inner = rng.integers(0, cities, cities - 1 if kind == 1 else rng.integers(0, 4 * cities - 1))
                check(matrix, [0, *inner.tolist(), 0])


def to_the_letter(matrix: Matrix, route: list[int]) -> dict[str, Any]:
    """EDM and PS as section 3.3 prints them."""
    best, n = shortest(matrix), len(matrix)
    multiplier = min(Fraction(3), Fraction(walk(matrix, route) - best, best))
    score = 100 * min(1 - multiplier / 3, 1 - Fraction(n - len(set(route)), n))
    return {
        "excess_distance_multiplier_paper": pytest.approx(float(multiplier), abs=1e-9),
        "penalised_score_paper": pytest.approx(float(score), abs=1e-7),
    }


def check(matrix: Matrix, route: list[int]) -> None:
    right = expected(matrix, route)
    correct, scores = measured(matrix, route)
    assert correct == right.correct
    assert scores == {
        "penalised_score": pytest.approx(float(right.score), abs=1e-7),
        "excess_distance_multiplier": pytest.approx(float(right.multiplier), abs=1e-9),
        "missing_cities": len(right.missing),
        **to_the_letter(matrix, route),
    }
    assert (scores["penalised_score"] == 100) == correct
    assert 0 <= scores["penalised_score"] <= 100


@given(answered())
def test_findings_are_the_missing_cities_and_then_the_excess_or_else_the_repeats(
    given_: tuple[Matrix, list[int]],
) -> None:
    matrix, route = given_
    assume(shortest(matrix))
    right = expected(matrix, route)
    found = task_for(matrix).findings(problem_of(matrix), ",".join(map(str, route)))
    excess = [["excess", right.excess / 100]] if right.excess else []
    of_the_paper = [*(["missing", city] for city in right.missing), *excess]
    assert list(found) == (of_the_paper or [["repeated", v] for v in range(len(matrix)) if route[:-1].count(v) > 1])
    assert (not found) == right.correct


def test_an_answer_that_cannot_be_read_has_the_worst_of_everything() -> None:
    scores = {"penalised_score": 0, "excess_distance_multiplier": 3, "missing_cities": 4}
    to_the_letter = {"penalised_score_paper": 0, "excess_distance_multiplier_paper": 3}
    assert measured(SQUARE, None) == (False, scores | to_the_letter)


@pytest.mark.parametrize(
    ("route", "correct", "score", "multiplier", "missing"),
    [
        ([0, 1, 2, 3, 0], True, 100, 0, 0),
        ([0, 3, 2, 1, 0], True, 100, 0, 0),  # the other way round
        ([0, 2, 1, 3, 0], False, 100 * (1 - 0.205 / 3), 0.205, 0),
        ([0, 1, 0], False, 50, 0, 2),  # shorter than the optimum, and not rewarded for it
        ([0, 0], False, 25, 0, 3),
        ([0, 1, 1, 2, 3, 0], False, 75, 0, 0),  # a stay costs nothing and is scored as a missing city
        ([0, *[2, 0] * 7, 0], False, 100 * (1 - (7 * 2.82 - 4) / 4 / 3) if 7 * 2.82 < 16 else 0, 3, 2),
    ],
)
def test_cases_by_hand(route: list[int], correct: bool, score: float, multiplier: float, missing: int) -> None:
    found = measured(SQUARE, route)
    assert found == (
        correct,
        {
            "penalised_score": pytest.approx(score),
            "excess_distance_multiplier": pytest.approx(multiplier),
            "missing_cities": missing,
            **to_the_letter(SQUARE, route),
        },
    )


def test_scores_to_the_letter_by_hand() -> None:
    for route, score, multiplier in [
        ([0, 1, 2, 3, 0], 100, 0),
        ([0, 1, 0], 50, -0.5),  # a length of 2 for one of 4
        ([0, 0], 25, -1),
        ([0, 1, 1, 2, 3, 0], 100, 0),
        ([0, 2, 1, 3, 0], 100 * (1 - 0.205 / 3), 0.205),
    ]:
        _, scores = measured(SQUARE, route)
        assert scores["penalised_score_paper"] == pytest.approx(score)
        assert scores["excess_distance_multiplier_paper"] == pytest.approx(multiplier)


@pytest.mark.parametrize(("off", "correct"), [(1e-10, True), (-1e-10, True), (1e-8, False)])
def test_lengths_that_differ_by_rounding_alone_are_equal(off: float, correct: bool) -> None:
    distances = [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0 * (1 + 2 * off)], [2.0, 3.0 * (1 + 2 * off), 0.0]]
    found = metrics.measure(distances, 6.0, [0, 1, 2, 0])
    assert found.correct == correct
    for score, best in (
        ("penalised_score", 100),
        ("penalised_score_paper", 100),
        ("excess_distance_multiplier_paper", 0),
    ):
        assert (found.scores[score] == best) == correct
    assert bool(metrics.findings(distances, 6.0, [0, 1, 2, 0])) != correct


def test_a_detour_that_costs_nothing_is_named() -> None:
    on_the_way = symmetric(4, [100, 200, 300, 100, 200, 100])  # on a line: cities can be passed again at no cost
    assert expected(on_the_way, [0, 1, 2, 3, 2, 0]).excess == 0
    for matrix, route in ((SQUARE, "0,1,1,2,3,0"), (on_the_way, "0,1,2,3,2,1,0"), (SQUARE, "0,0,1,2,3,0")):
        task, problem = task_for(matrix), problem_of(matrix)
        found = task.verified(problem, Response(text="", answer=route), 9)
        again = sorted({city for city in route[:-1] if route[:-1].count(city) > 1} - {","})
        assert found.fitness == 75
        assert found.errors.findings == tuple(["repeated", int(city)] for city in again)
        assert found.errors.text == f"repeated {','.join(again)}"

"""The metrics, against the formulas of section 3.2 written out anew."""

from fractions import Fraction

import pytest
from graph_coloring_cases import TASK, answered, problem
from hypothesis import given
from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem

TRIANGLE = problem(3, [(0, 1), (1, 2), (0, 2)], 3)
PATH = problem(4, [(0, 1), (1, 2), (2, 3)], 2)


def text(colors: list[int]) -> str:
    return ",".join(str(color) for color in colors)


def by_the_formulas(of: Problem, colors: list[int]) -> tuple[bool, Fraction, Fraction, Fraction]:
    """CR, CF, SC and PS in exact arithmetic, over all pairs of vertices, with the decisions of the module."""
    size, k = of.data["vertices"], of.data["colors"]
    joined = {frozenset(edge) for edge in of.data["edges"]}
    pairs = [(u, v) for u in range(size) for v in range(size) if u < v and {u, v} in joined]
    clashing = [1 if colors[u] == colors[v] else 0 for u, v in pairs]
    right = all(color in range(k) for color in colors) and not any(clashing)
    ratio = Fraction(sum(clashing), len(pairs)) if pairs else Fraction(0)
    score = (1 - ratio) * 100
    beyond = len(set(colors) - set(range(k)))
    if beyond == 0:
        penalised = score
    elif k + beyond >= size:
        penalised = Fraction(0)
    else:
        penalised = score * (1 - Fraction(beyond, size - k))
    return right, ratio, score, penalised


def penalised_to_the_letter(of: Problem, colors: list[int], score: Fraction) -> Fraction:
    """PS as section 3.2 prints it: k' distinct colours, |V| vertices, k allowed."""
    k_, v, k = len(set(colors)), of.data["vertices"], of.data["colors"]
    return Fraction(0) if k_ >= v else score if k_ <= k else score * (1 - Fraction(k_ - k, v - k))


@given(answered())
def test_all_metrics_follow_the_formulas_and_the_fitness_is_100_where_the_answer_is_right(
    case: tuple[Problem, list[int]],
) -> None:
    of, colors = case
    found = TASK.measure(of, text(colors))
    right, ratio, score, penalised = by_the_formulas(of, colors)
    assert found.correct == right
    assert found.scores == pytest.approx(
        {
            "conflict_ratio": float(ratio),
            "score": float(score),
            "penalised_score": float(penalised),
            "penalised_score_paper": float(penalised_to_the_letter(of, colors, score)),
        },
        rel=1e-12,
    )
    verified = TASK.verified(of, Response(text="", answer=text(colors)), 3)
    assert 0 <= verified.fitness <= 100
    assert (verified.fitness == 100) == (verified.errors.findings == ()) == right


def test_cases_by_hand() -> None:
    for of, answer, correct, penalised, to_the_letter in [
        (TRIANGLE, "0,1,2", True, 100, 0),  # k' = |V|, and right all the same
        (TRIANGLE, "0,1,3", False, 0, 0),
        (TRIANGLE, "0,0,0", False, 0, 0),
        (PATH, "0,1,0,1", True, 100, 100),
        (PATH, "1,2,1,2", False, 50, 100),  # colours 1 to k
        (PATH, "0,7,0,7", False, 50, 100),  # k' = k, but 7 is no colour: one of two spare ones
        (PATH, "0,1,2,3", False, 0, 0),  # each vertex its own colour
        (PATH, "0,0,1,2", False, 100 * 2 / 3 / 2, 100 * 2 / 3 / 2),
        (problem(3, [], 2), "0,0,0", True, 100, 100),
        (problem(3, [], 2), "0,0,2", False, 0, 100),
        (problem(2, [(0, 1)], 5), "3,4", True, 100, 0),  # more colours than vertices
        (problem(2, [(0, 1)], 5), "3,5", False, 0, 0),
    ]:
        found = TASK.measure(of, answer)
        assert found.correct == correct
        assert found.scores["penalised_score"] == pytest.approx(penalised)
        assert found.scores["penalised_score_paper"] == pytest.approx(to_the_letter)


@given(st.text(max_size=60) | st.text("0123456789, \n`-.[]", max_size=60))
def test_a_malformed_text_has_the_worst_of_each_metric_and_never_raises(text: str) -> None:
    response = TASK.parse(PATH, text)
    grade = TASK.score(PATH, response, None)
    if response.answer is None:
        assert grade.scores == {"score": 0, "penalised_score": 0, "conflict_ratio": 1, "penalised_score_paper": 0}
        assert grade.correct is False
        assert grade.detail == response.error != ""
    assert TASK.verified(PATH, response, 3).fitness == grade.scores["penalised_score"]

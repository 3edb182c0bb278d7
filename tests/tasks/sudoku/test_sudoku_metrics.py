"""The metrics and the errors against the paper's formulas, on right, wrong, changed and malformed answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sudoku_fixture import NO_TOOLS, TASK, loaded, noisy, paper_errors, paper_metrics, problems, solution, text_of

from evorun.runs.candidates import Response

CASES = [(box, number) for box in (2, 3, 4) for number in range(2)]


@pytest.mark.parametrize(("box", "number"), CASES)
def test_metrics_and_errors_follow_the_formulas(box: int, number: int) -> None:
    problem, right = problems(box)[number], solution(box, number)
    rng = np.random.default_rng(box * 10 + number)
    outcomes = set()
    for _ in range(400 if box < 4 else 100):
        rows = noisy(problem, right, rng)
        answer = text_of(rows)
        measured = TASK.measure(problem, answer)
        correct, score, penalised = paper_metrics(problem, rows)
        assert measured.correct == correct
        assert measured.scores == {
            "score": pytest.approx(score, abs=1e-9),
            "penalised_score": pytest.approx(penalised, abs=1e-9),
        }
        assert list(TASK.findings(problem, answer)) == paper_errors(problem, rows)
        assert (measured.scores["penalised_score"] == 100) == correct == (not TASK.findings(problem, answer))
        outcomes.add(correct)
    assert outcomes == {True, False}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), number=st.integers(0, 1))
def test_any_numbers_at_all_follow_the_formulas(data: st.DataObject, number: int) -> None:
    problem = problems(2)[number]
    size = 4
    rows = data.draw(st.lists(st.lists(st.integers(-2, 6), min_size=size, max_size=size), min_size=size, max_size=size))
    measured = TASK.measure(problem, text_of(rows))
    correct, score, penalised = paper_metrics(problem, rows)
    assert measured.correct == correct
    assert measured.scores["score"] == pytest.approx(score, abs=1e-9)
    assert measured.scores["penalised_score"] == pytest.approx(penalised, abs=1e-9)
    assert list(TASK.findings(problem, text_of(rows))) == paper_errors(problem, rows)


def test_another_right_grid_is_not_an_answer_to_this_puzzle() -> None:
    problem, right = problems(3)[0], solution(3, 0)
    swapped = [[{1: 2, 2: 1}.get(value, value) for value in row] for row in right]
    measured = TASK.measure(problem, text_of(swapped))
    assert not measured.correct
    assert measured.scores["penalised_score"] < 100
    assert {kind for _, _, kind in TASK.findings(problem, text_of(swapped))} == {"given"}


async def test_what_cannot_be_read_is_worth_nothing() -> None:
    for problem in loaded(3).problems:
        for text in ("", "no block", "```\n```", "```\n1 2 3\n```", "```\n" + "9 " * 10_000 + "\n```"):
            response = TASK.parse(problem, text)
            grade = await loaded(3).grader.grade(problem, response, NO_TOOLS)
            assert not grade.correct
            assert grade.scores == {"score": 0, "penalised_score": 0}
            verified = await TASK.verify(problem, response, 3, NO_TOOLS)
            assert verified.fitness == 0
            assert verified.errors.text
            assert verified.errors.findings == ()


async def test_gold_answers_pass_the_grader_and_a_changed_cell_fails() -> None:
    for box in (2, 3, 4):
        for shot in loaded(box).validation:
            grade = await loaded(box).grader.grade(shot.problem, TASK.response(shot.answer), NO_TOOLS)
            assert grade.correct
            assert grade.scores == {"score": 100, "penalised_score": 100}
            words = shot.answer.split(" ", 1)
            other = Response(text="", answer=f"{int(words[0]) % box**2 + 1} {words[1]}")
            assert not (await loaded(box).grader.grade(shot.problem, other, NO_TOOLS)).correct


def test_the_limit_on_errors_takes_the_first_and_none_is_none() -> None:
    problem, rows = problems(3)[0], [[1] * 9 for _ in range(9)]
    found = paper_errors(problem, rows)
    for limit in (0, 1, 3, 1000):
        verified = TASK.verified(problem, TASK.response(text_of(rows)), limit)
        assert list(verified.errors.findings) == found[:limit]
        assert bool(verified.errors.text) == (limit > 0)

"""The metrics and the errors against the paper's formulas, on right, wrong and changed answers."""

import numpy as np
import pytest
from sudoku_fixture import NO_TOOLS, TASK, loaded, noisy, paper_errors, paper_metrics, problems, solution, text_of

from evorun.runs.candidates import Response

CASES = [(2, 0), (3, 0), (4, 1)]


@pytest.mark.parametrize(("box", "number"), CASES)
def test_metrics_and_errors_follow_the_formulas(box: int, number: int) -> None:
    problem, right = problems(box)[number], solution(box, number)
    rng = np.random.default_rng(box * 10 + number)
    outcomes = set()
    for _ in range(150 if box < 4 else 50):
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


def test_another_right_grid_is_not_an_answer_to_this_puzzle() -> None:
    problem, right = problems(3)[0], solution(3, 0)
    swapped = [[{1: 2, 2: 1}.get(value, value) for value in row] for row in right]
    measured = TASK.measure(problem, text_of(swapped))
    assert not measured.correct
    assert measured.scores["penalised_score"] < 100
    assert {kind for _, _, kind in TASK.findings(problem, text_of(swapped))} == {"given"}


async def test_gold_answers_pass_the_grader_and_a_changed_cell_fails() -> None:
    for box in (2, 3, 4):
        for shot in loaded(box).validation:
            grade = await loaded(box).grader.grade(shot.problem, TASK.response(shot.answer), NO_TOOLS)
            assert grade.correct
            assert grade.scores == {"score": 100, "penalised_score": 100}
            words = shot.answer.split(" ", 1)
            other = Response(text="", answer=f"{int(words[0]) % box**2 + 1} {words[1]}")
            assert not (await loaded(box).grader.grade(shot.problem, other, NO_TOOLS)).correct

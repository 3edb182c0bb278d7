"""The metrics and the errors against the paper's formulas, on right, wrong and changed answers."""

import numpy as np
import pytest
from sudoku_fixture import NO_TOOLS, TASK, loaded, noisy, paper_errors, paper_metrics, problems, solution, text_of

from evorun.runs.candidates import Response
from evorun.tasks.sudoku.sudoku import Sudoku

CASES = [(2, 0), (3, 0), pytest.param(4, 1, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(("box", "number"), CASES)
def test_metrics_and_errors_follow_the_formulas(box: int, number: int) -> None:
    problem, right = problems(box)[number], solution(box, number)
    rng = np.random.default_rng(box * 10 + number)
    outcomes = set()
    for _ in range(50):
        rows = noisy(problem, right, rng)
        answer = text_of(rows)
        measured = TASK.measure(problem, answer)
        correct, score, penalised = paper_metrics(problem, rows)
        _, score_paper, penalised_paper = paper_metrics(problem, rows, to_the_letter=True)
        assert measured.correct == correct
        assert measured.scores == {
            "score": pytest.approx(score, abs=1e-9),
            "penalised_score": pytest.approx(penalised, abs=1e-9),
            "score_paper": pytest.approx(score_paper, abs=1e-9),
            "penalised_score_paper": pytest.approx(penalised_paper, abs=1e-9),
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
    assert (measured.scores["score_paper"], measured.scores["penalised_score_paper"]) == (100, 100)
    assert {kind for _, _, kind in TASK.findings(problem, text_of(swapped))} == {"given"}


def test_by_default_errors_are_of_the_papers_three_kinds_and_no_prompt_speaks_of_given_numbers() -> None:
    problem, right = problems(3)[0], solution(3, 0)
    rows = [[right[0][1], right[0][0], *right[0][2:]], *right[1:]]  # of the two cells one is given
    answer, errors = TASK.response(text_of(rows)), paper_errors(problem, rows)
    assert {kind for _, _, kind in errors} > {"given"}
    for task, kinds in ((loaded(3).task, ("row", "col", "box")), (TASK, ("row", "col", "box", "given"))):
        assert isinstance(task, Sudoku)
        assert list(task.findings(problem, answer.answer or "")) == [one for one in errors if one[2] in kinds]
        asked = [prompt(problem, answer) for prompt in (task.errors_prompt, task.fitness_prompt)]
        texts = [prompt.messages[0]["content"] for prompt in (task.generation_prompt(problem), *asked)]
        assert [" own numbers" in text or "gives" in text for text in texts] == [len(kinds) == 4] * 3
        assert (task.read_findings(problem, "0,0,given") is None) == (len(kinds) == 3)


def test_scores_to_the_letter_by_hand() -> None:
    """In 4 x 4: swapping 1 and 2 in row 1 alone leaves the row and its box complete, and breaks two columns."""
    problem, right = problems(2)[0], solution(2, 0)
    places = {value: place for place, value in enumerate(right[0])}
    first = places[1]
    beside = first ^ 1  # the other cell of the row in the same box
    rows = [list(row) for row in right]
    rows[0][first], rows[0][beside] = rows[0][beside], rows[0][first]
    scores = TASK.measure(problem, text_of(rows)).scores
    assert scores["score_paper"] == pytest.approx(100 * 10 / 12)
    assert scores["penalised_score_paper"] == pytest.approx(100 * 0.5 ** (1 / 3))


async def test_gold_answers_pass_the_grader_and_a_changed_cell_fails() -> None:
    for box in (2, 3, 4):
        for shot in loaded(box).validation:
            grade = await loaded(box).grader.grade(shot.problem, TASK.response(shot.answer), NO_TOOLS)
            assert grade.correct
            assert set(grade.scores.values()) == {100}
            words = shot.answer.split(" ", 1)
            other = Response(text="", answer=f"{int(words[0]) % box**2 + 1} {words[1]}")
            assert not (await loaded(box).grader.grade(shot.problem, other, NO_TOOLS)).correct

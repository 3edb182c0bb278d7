"""The simulated model: how often each cell is right."""

import numpy as np
import pytest
from sudoku_fixture import TASK, problems, rows_of, solution, text_of

from evorun.tasks.sudoku.sudoku import SolvedSudoku

PROBLEM = problems(3)[0]
RIGHT = text_of(solution(3, 0))
EMPTY = [(i, j) for i, row in enumerate(rows_of(PROBLEM.data["grid"])) for j, value in enumerate(row) if not value]
PLAYER = SolvedSudoku(TASK, PROBLEM, RIGHT)


def share_right(answer: str) -> float:
    rows, right = rows_of(answer), rows_of(RIGHT)
    return sum(rows[i][j] == right[i][j] for i, j in EMPTY) / len(EMPTY)


@pytest.mark.parametrize("skill", [0.0, 0.3, 0.8, 1.0])
def test_each_cell_is_right_as_often_as_the_skill_says(skill: float) -> None:
    rng = np.random.default_rng(1)
    answers = [PLAYER.attempt(skill, rng) for _ in range(200)]
    assert np.mean([share_right(answer) for answer in answers]) == pytest.approx(skill, abs=0.03)
    for answer in answers:
        assert not [kind for _, _, kind in TASK.findings(PROBLEM, answer) if kind == "given"]
        assert TASK.read_answer(PROBLEM, answer) == answer
        assert {value for row in rows_of(answer) for value in row} <= set(range(1, 10))


def test_revision_takes_the_right_cells_mends_and_slips_as_often_as_told() -> None:
    rng = np.random.default_rng(2)

    def mean(answers: list[str], choice: float, repair: float, slip: float) -> float:
        return float(np.mean([share_right(PLAYER.revise(answers, choice, repair, slip, rng)) for _ in range(200)]))

    wrong = PLAYER.attempt(0.0, rng)
    assert PLAYER.revise([wrong], 1, 0, 0, rng) == wrong
    assert PLAYER.revise([RIGHT], 0, 0, 0, rng) == RIGHT
    assert mean([wrong, RIGHT], 0.7, 0, 0) == pytest.approx(0.7, abs=0.03)
    assert mean([wrong], 0.9, 0.25, 0) == pytest.approx(0.25, abs=0.03)
    assert mean([RIGHT], 0.9, 0.25, 0.1) == pytest.approx(0.9, abs=0.03)
    assert mean([wrong, RIGHT], 0.7, 0.5, 0.2) == pytest.approx(0.7 * 0.8 + 0.3 * 0.5, abs=0.03)
    other = PLAYER.attempt(0.0, rng)
    rows, sources = rows_of(PLAYER.revise([wrong, other], 1, 0, 0, rng)), (rows_of(wrong), rows_of(other))
    assert all(rows[i][j] in {source[i][j] for source in sources} for i, j in EMPTY)

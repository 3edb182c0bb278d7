"""Generated puzzles: exactly as many empty cells, one solution, other puzzles in each split, the same ones again."""

from random import Random

import pytest
from sudoku_fixture import rows_of
from test_sudoku_solver import is_right

from building import load_task, task_config
from evorun.errors import ConfigError
from evorun.tasks.base import LoadedTask
from evorun.tasks.sudoku.instances import random_grid


def plain_count(values: list[int], box: int) -> int:
    """Count the solutions up to 2 by plain backtracking over the cell with the fewest numbers left."""
    n = box * box
    best: tuple[int, set[int]] | None = None
    for cell in range(n * n):
        if not values[cell]:
            i, j = divmod(cell, n)
            row = {values[i * n + k] for k in range(n)}
            column = {values[k * n + j] for k in range(n)}
            square = {
                values[a * n + b]
                for a in range(i - i % box, i - i % box + box)
                for b in range(j - j % box, j - j % box + box)
            }
            left = set(range(1, n + 1)) - row - column - square
            if best is None or len(left) < len(best[1]):
                best = cell, left
    if best is None:
        return 1
    cell, left = best
    count = 0
    for value in left:
        values[cell] = value
        count += plain_count(values, box)
        values[cell] = 0
        if count > 1:
            break
    return count


def flat(text: str) -> list[int]:
    return [value for row in rows_of(text) for value in row]


def puzzles(loaded: LoadedTask) -> list[str]:
    return [problem.data["grid"] for problem in loaded.problems]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("box", "empty", "count"),
    [
        (2, 1, 3),
        (2, 12, 10),
        (3, 40, 8),
        (3, 52, 3),
        pytest.param(5, 100, 1, marks=pytest.mark.nightly),
        pytest.param(4, 100, 1, marks=pytest.mark.nightly),
    ],
)
def test_puzzles_have_the_empty_cells_asked_for_and_one_solution(box: int, empty: int, count: int) -> None:
    loaded = load_task("sudoku", box=box, empty_cells=empty, instances=1, validation_instances=count)
    for shot in loaded.validation:
        values, answer = flat(shot.problem.data["grid"]), flat(shot.answer)
        assert len(values) == len(answer) == box**4
        assert values.count(0) == empty
        assert is_right(answer, box)
        assert all(value in (0, right) for value, right in zip(values, answer, strict=True))
        assert plain_count(values, box) == 1
        assert shot.problem.stratum == f"{box**2}x{box**2}"


@pytest.mark.parametrize("box", [2, 3, 4, pytest.param(5, marks=pytest.mark.nightly)])
def test_random_grids_are_right_and_differ(box: int) -> None:
    grids = [random_grid(box, Random(seed)) for seed in range(2)]
    assert all(is_right(grid, box) for grid in grids)
    assert grids[0] != grids[1]
    assert box == 5 or random_grid(box, Random(0)) == grids[0]  # a grid of this size takes a second


@pytest.mark.nightly
def test_every_small_grid_comes_up() -> None:
    random = Random(0)
    assert len({tuple(random_grid(2, random)) for _ in range(2600)}) == 288


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"box": 2}, r"task\.empty_cells: expected a number in \[1, 12\] with task\.box=2, got 40"),
        ({"empty_cells": 0}, r"task\.empty_cells: expected a number in \[1, 58\]"),
        ({"empty_cells": 65}, r"task\.empty_cells: .* got 65"),
        ({"box": 1}, r"task\.box: expected a number in \[2, 5\], got 1"),
        ({"box": 6}, r"task\.box: expected a number in \[2, 5\], got 6"),
        ({"split": "test"}, r"task\.split"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_config("sudoku", **settings)

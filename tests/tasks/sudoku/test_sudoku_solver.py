"""The solver against brute force, known counts of grids, and outside puzzles whose solutions are on record."""

import itertools
import os
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from sudoku_fixture import unit_cells

from evorun.tasks.sudoku.grid import layout
from evorun.tasks.sudoku.solver import GaveUp, Search

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "puzzles" / "sudoku.jsonl"


def records() -> list[dict[str, Any]]:
    if not TEST_DATA.is_file():
        pytest.skip(f"needs {TEST_DATA.name}; set EVORUN_TEST_DATA to the folder of the test data")
    return [msgspec.json.decode(line) for line in TEST_DATA.read_bytes().splitlines()]


def numbers(puzzle: str) -> list[int]:
    return [0 if character == "." else int(character) for character in puzzle]


def is_right(grid: list[int], box: int) -> bool:
    n = box * box
    return all(
        {grid[i * n + j] for i, j in cells} == set(range(1, n + 1))
        for units in unit_cells(n, box).values()
        for cells in units
    )


def brute_force(values: list[int]) -> list[list[int]]:
    """All solutions of a 4 x 4 puzzle: whole rows, one below the other, whose columns hold no number twice."""
    grids: list[tuple[int, ...]] = [()]
    for start in range(0, 16, 4):
        rows = [
            row
            for row in itertools.permutations(range(1, 5))
            if all(value in (0, number) for value, number in zip(values[start : start + 4], row, strict=True))
        ]
        grids = [g + row for g in grids for row in rows if all(row[j] not in g[j::4] for j in range(4))]
    return [list(grid) for grid in grids if is_right(list(grid), 2)]


def test_counts_agree_with_brute_force() -> None:
    random = Random(1)
    counts = set()
    for _ in range(60):
        values = [0] * 16
        for cell in random.sample(range(16), random.randint(4, 8)):
            values[cell] = random.randint(1, 4)
        expected = brute_force(values)
        found = Search(2).solve(values, 1000)
        assert sorted(found) == expected
        assert sorted(Search(2, random=random).solve(values, 1000)) == expected
        counts.add(min(2, len(expected)))
    right = Search(2).solve([0] * 16, 1000)
    assert len(right) == 288  # the known number of 4 x 4 grids
    for grid in random.sample(right, 12):
        values = [value if random.random() < 0.35 else 0 for value in grid]
        counts.add(min(2, len(brute_force(values))))
        assert sorted(Search(2).solve(values, 1000)) == brute_force(values)
    assert counts == {0, 1, 2}


@pytest.mark.nightly
def test_the_outside_puzzles_have_the_solutions_on_record() -> None:
    sample = records()[::40] + [record for record in records() if record["solutions"] != 1]
    assert {record["solutions"] for record in sample} >= {0, 1, 3, 9, 13, 122, 132}
    for record in sample:
        found = Search(3).solve(numbers(record["puzzle"]), 1000)
        assert len(found) == record["solutions"], record["id"]
        assert len({tuple(grid) for grid in found}) == len(found)
        assert all(is_right(grid, 3) for grid in found[:20])
        if record["solution"]:
            assert found[0] == numbers(record["solution"])


def test_the_limit_ends_the_search() -> None:
    for limit in (1, 2, 7):
        assert len(Search(3).solve([0] * 81, limit)) == limit
    assert len(Search(5).solve([0] * 625, 1)) == 1


def test_a_forbidden_number_is_not_used() -> None:
    grid = Search(3).solve([0] * 81, 1)[0]
    others = Search(3).solve([0] * 81, 50, without=(40, grid[40]))
    assert len(others) == 50
    assert all(other[40] != grid[40] for other in others)
    assert Search(3).solve([*grid[:40], 0, *grid[41:]], 2, without=(40, grid[40])) == []
    assert Search(3).solve(grid, 2) == [grid]


def test_givens_that_contradict_each_other_have_no_solution() -> None:
    for cell in (1, 9, 10):
        values = [0] * 81
        values[0] = values[cell] = 5
        assert Search(3).solve(values, 2) == []


def test_the_search_gives_up_when_it_is_told_to() -> None:
    with pytest.raises(GaveUp):
        Search(3, max_guesses=3).solve([0] * 81, 1)
    search = Search(3, max_guesses=60)
    assert search.solve([0] * 81, 1) == search.solve([0] * 81, 1)  # the guesses count for each call alone


@pytest.mark.parametrize("box", [2, 3, 4, 5])
def test_the_layout_has_the_units_of_a_sudoku(box: int) -> None:
    n = box * box
    expected = [sorted(i * n + j for i, j in cells) for units in unit_cells(n, box).values() for cells in units]
    board = layout(box)
    assert [sorted(unit) for unit in board.units] == expected
    for cell in range(n * n):
        own = [set(unit) for unit in expected if cell in unit]
        assert set(board.peers[cell]) == set.union(*own) - {cell}
        assert all(
            cell in board.units[unit] and unit // n == kind for kind, unit in enumerate(board.units_by_cell[cell])
        )

"""A puzzle made ready for what is asked of it thousands of times: its metrics, its errors, its operators."""

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from evorun.tasks.base import Problem
from evorun.tasks.sudoku.grid import EMPTY, Layout, layout

Cells = tuple[str, ...]
"""A completed grid in reading order; each number as the canonical text has it, so equal texts are equal numbers."""


class Board(NamedTuple):
    """A puzzle, parsed."""

    layout: Layout
    numbers: frozenset[str]
    """1..n, as texts."""
    givens: dict[int, str]
    """Number by cell."""
    by_box: Callable[[Cells], Cells]
    """Returns a grid's numbers box by box."""


def board_of(problem: Problem) -> Board:
    """Return the board of one of the task's problems."""
    return _board(problem.data["box"], problem.data["grid"])


def cells_of(answer: str) -> Cells:
    """Return the cells of an answer in canonical form."""
    return tuple(answer.split())


@lru_cache(maxsize=512)
def _board(box: int, grid: str) -> Board:
    board = layout(box)
    givens = {cell: text for cell, text in enumerate(grid.split()) if text != EMPTY}
    by_box = itemgetter(*(cell for unit in board.units[2 * board.size :] for cell in unit))
    numbers = frozenset(str(number) for number in range(1, board.size + 1))
    return Board(board, numbers, givens, by_box)

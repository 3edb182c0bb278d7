"""The grid: its units and its text forms.

A cell is numbered in reading order, i * n + j for row i and column j, both from 0. Rows, columns and boxes are units;
the paper's prompts call boxes subgrids.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import NamedTuple

from evorun.tasks.base import Problem

BOXES = range(2, 6)
"""Side lengths of a box: the grid has box**2 rows, columns, boxes and numbers."""
EMPTY = "."
"""An empty cell in texts; 0 where cells are numbers."""


class Layout(NamedTuple):
    """The units of a grid of one size, and the peers of its cells."""

    box: int
    size: int
    """n = box**2."""
    units: tuple[tuple[int, ...], ...]
    """The cells of the n rows, then of the n columns, then of the n boxes."""
    units_by_cell: tuple[tuple[int, int, int], ...]
    """For each cell the indices in `units` of its row, column and box."""
    peers: tuple[tuple[int, ...], ...]
    """For each cell the others that share a unit with it."""


@cache
def layout(box: int) -> Layout:
    """Return the layout for boxes of `box` by `box` cells."""
    size = box * box
    cells = range(size * size)
    units_by_cell = tuple(
        (i, size + j, 2 * size + i // box * box + j // box) for i, j in (divmod(cell, size) for cell in cells)
    )
    units = tuple(tuple(cell for cell in cells if unit in units_by_cell[cell]) for unit in range(3 * size))
    peers = tuple(tuple(sorted({peer for unit in units_by_cell[c] for peer in units[unit]} - {c})) for c in cells)
    return Layout(box, size, units, units_by_cell, peers)


# --- a puzzle, parsed once: metrics, errors and operators need it thousands of times ---

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


def read_board(problem: Problem) -> Board:
    """Return the board of one of the task's problems."""
    return _board(problem.data["box"], problem.data["grid"])


def read_cells(answer: str) -> Cells:
    """Return the cells of an answer in canonical form."""
    return tuple(answer.split())


@lru_cache(maxsize=512)
def _board(box: int, grid: str) -> Board:
    board = layout(box)
    givens = {cell: text for cell, text in enumerate(grid.split()) if text != EMPTY}
    by_box = itemgetter(*(cell for unit in board.units[2 * board.size :] for cell in unit))
    numbers = frozenset(str(number) for number in range(1, board.size + 1))
    return Board(board, numbers, givens, by_box)


# --- texts ---


def join_cells(texts: Sequence[str], size: int) -> str:
    """Return the canonical text of a grid: one line per row, cells separated by single spaces."""
    return "\n".join(" ".join(texts[start : start + size]) for start in range(0, size * size, size))


def format_grid(values: Sequence[int], size: int) -> str:
    """Return the canonical text of a grid of numbers in reading order; 0, an empty cell, becomes a dot."""
    return join_cells([str(value) if value else EMPTY for value in values], size)

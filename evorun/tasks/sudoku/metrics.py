"""The metrics of an answer (Lyria paper, section 3.1) and its errors (section 4.1.1).

Decisions:

- The paper's formulas look at the answer alone, so a grid that solves another puzzle would be correct. Here a row,
  column or box in which a given number was changed counts as unsatisfied, in CR, SC and PS alike. Answers that keep the
  givens, the only ones that the paper considers, are scored as there. Then PS is 100 exactly when CR is 1: both ask for
  all 3n units, and Lyria stops at a fitness of 100.
- The same holds for errors. The paper has them lie in the removed positions; so a cell that the puzzle gives is never
  in error for its row, column or box. It has the one error `given`, and only when it was changed. An answer without
  errors is then a correct one. The paper has no such kind, and searches see it only with task.name_givens.
- A removed cell is in error for a unit in which its number occurs more than once (a given elsewhere counts too), or
  when its number lies outside 1..n: then for all three of its units.
- An answer that cannot be read has CR, SC and PS 0.

`score_paper` and `penalised_score_paper` are SC and PS of section 3.1 to the letter: they look at the grid alone. They
are higher where an answer changes a given: a solved grid with its digits permuted has 100 in both. Fitness and errors
follow the readings above.
"""

from collections.abc import Sequence
from typing import Any

from evorun.tasks.base import Grade
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE, PENALISED_SCORE_PAPER
from evorun.tasks.sudoku.grid import Board, Cells, read_cells

SCORE = "score"
SCORE_PAPER = "score_paper"
UNITS = ("row", "col", "box")
"""In the order of a layout's units."""
KINDS = (*UNITS, "given")
"""The kinds of errors."""


def measure(board: Board, answer: str | None) -> Grade:
    """Return CR, SC and PS of an answer in canonical form; None: it could not be read."""
    if answer is None:
        return Grade(
            correct=False, scores={SCORE: 0.0, PENALISED_SCORE: 0.0, SCORE_PAPER: 0.0, PENALISED_SCORE_PAPER: 0.0}
        )
    cells = read_cells(answer)
    complete = [set(unit) == board.numbers for unit in _units(board, cells)]
    satisfied = list(complete)
    # A changed given spoils its row, its column and its box; see the decisions above.
    for cell, number in board.givens.items():
        if cells[cell] != number:
            for unit in board.layout.units_by_cell[cell]:
                satisfied[unit] = False
    score, penalised = _shares(satisfied)
    score_paper, penalised_paper = _shares(complete)
    scores = {
        SCORE: score,
        PENALISED_SCORE: penalised,
        SCORE_PAPER: score_paper,
        PENALISED_SCORE_PAPER: penalised_paper,
    }
    return Grade(correct=all(satisfied), scores=scores)


def _shares(satisfied: Sequence[bool]) -> tuple[float, float]:
    """Return SC and PS from the satisfied rows, columns and boxes, in this order."""
    size = len(satisfied) // 3
    rows, columns, boxes = (sum(satisfied[kind * size : (kind + 1) * size]) for kind in range(3))
    # The geometric mean of the three shares (section 3.1): 0 where one of them is 0.
    penalised = 100 * (rows / size * (columns / size) * (boxes / size)) ** (1 / 3)
    return 100 * sum(satisfied) / (3 * size), penalised


def findings(board: Board, answer: str) -> tuple[Any, ...]:
    """Return the errors as [i, j, kind], i and j from 0, in reading order."""
    cells, size = read_cells(answer), board.layout.size
    units = _units(board, cells)
    found: list[Any] = []
    for cell, number in enumerate(cells):
        i, j = divmod(cell, size)
        if cell in board.givens:
            if number != board.givens[cell]:
                found.append([i, j, "given"])
            continue
        # A number out of range is not repeated, but wrong in each of its units.
        outside = number not in board.numbers
        for kind, unit in zip(UNITS, board.layout.units_by_cell[cell], strict=True):
            if outside or units[unit].count(number) > 1:
                found.append([i, j, kind])
    return tuple(found)


def _units(board: Board, cells: Cells) -> list[Cells]:
    """Return the rows, the columns and the boxes of a grid."""
    size = board.layout.size
    by_box = board.by_box(cells)
    starts = range(0, size * size, size)
    return [
        *(cells[start : start + size] for start in starts),
        *(cells[column::size] for column in range(size)),
        *(by_box[start : start + size] for start in starts),
    ]

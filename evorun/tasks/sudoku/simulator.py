"""The simulated model on Sudoku, whose solution it knows: every empty cell is a decision, givens are kept."""

from collections.abc import Sequence

import numpy as np

from evorun.tasks.base import Problem
from evorun.tasks.puzzles.simulator import PuzzleSimulator, SolvedPuzzle
from evorun.tasks.puzzles.task import Puzzle
from evorun.tasks.sudoku.grid import board_of, cells_of, joined


class SolvedSudoku(SolvedPuzzle):
    """A puzzle with its solution."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        board = board_of(problem)
        self._size = board.layout.size
        self._right = cells_of(solution)
        self._empty = [cell for cell in range(len(self._right)) if cell not in board.givens]

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        cells = list(self._right)
        for cell, luck in zip(self._empty, rng.random(len(self._empty)).tolist(), strict=True):
            if luck >= skill:
                cells[cell] = self._wrong(cell, rng)
        return joined(cells, self._size)

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        shown = [cells_of(answer) for answer in answers]
        cells = list(self._right)
        lucks = rng.random((len(self._empty), 3)).tolist()
        for cell, (merging, mending, pick) in zip(self._empty, lucks, strict=True):
            right = self._right[cell]
            wrong = [other[cell] for other in shown if other[cell] != right]
            # A cell counts as right where all answers agree on it, or one of them has it right and the merging is
            # lucky.
            good = not wrong or (len(wrong) < len(shown) and merging < choice)
            if good and mending < slip:
                cells[cell] = self._wrong(cell, rng)
            elif not good and mending >= repair:
                cells[cell] = wrong[int(pick * len(wrong))]
        return joined(cells, self._size)

    def _wrong(self, cell: int, rng: np.random.Generator) -> str:
        """Return another number in 1..n than the right one."""
        number = 1 + int(rng.integers(self._size - 1))
        return str(number + (number >= int(self._right[cell])))


class SudokuSimulator(PuzzleSimulator):
    """Fills a grid cell by cell."""

    solved = SolvedSudoku

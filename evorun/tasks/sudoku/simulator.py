"""What a simulated model makes of a Sudoku whose solution it knows: every empty cell is a decision, givens are kept."""

from collections.abc import Sequence

import numpy as np

from evorun.tasks.base import Problem
from evorun.tasks.puzzles.reading import fenced
from evorun.tasks.puzzles.task import PENALISED_SCORE, Puzzle
from evorun.tasks.sudoku.board import board_of, cells_of
from evorun.tasks.sudoku.grid import joined


class SolvedSudoku:
    """A puzzle with its solution, in canonical form."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        board = board_of(problem)
        self._task = task
        self._problem = problem
        self._size = board.layout.size
        self._solution = cells_of(solution)
        self._empty = [cell for cell in range(len(self._solution)) if cell not in board.givens]

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Fill each empty cell rightly with probability `skill`, else with one of the wrong numbers."""
        cells = list(self._solution)
        for cell, luck in zip(self._empty, rng.random(len(self._empty)).tolist(), strict=True):
            if luck >= skill:
                cells[cell] = self._wrong(cell, rng)
        return joined(cells, self._size)

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Merge the answers, then mend and lose cells; see `evorun.tasks.puzzles.simulator.SolvedPuzzle`."""
        shown = [cells_of(answer) for answer in answers]
        cells = list(self._solution)
        lucks = rng.random((len(self._empty), 3)).tolist()
        for cell, (merging, mending, pick) in zip(self._empty, lucks, strict=True):
            right = self._solution[cell]
            wrong = [other[cell] for other in shown if other[cell] != right]
            good = not wrong or (len(wrong) < len(shown) and merging < choice)
            if good and mending < slip:
                cells[cell] = self._wrong(cell, rng)
            elif not good and mending >= repair:
                cells[cell] = wrong[int(pick * len(wrong))]
        return joined(cells, self._size)

    def fitness(self, answer: str) -> float:
        """Return the penalised score, in [0, 100]."""
        return self._task.measure(self._problem, answer).scores[PENALISED_SCORE]

    def errors(self, answer: str) -> str:
        """Return a fenced block with all errors, or `none`."""
        found = self._task.findings(self._problem, answer)
        return fenced(self._task.describe(self._problem, found) if found else "none")

    def _wrong(self, cell: int, rng: np.random.Generator) -> str:
        """Return another number in 1..n than the right one."""
        number = 1 + int(rng.integers(self._size - 1))
        return str(number + (number >= int(self._solution[cell])))

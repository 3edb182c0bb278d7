"""Sudoku as methods see it, and the simulated model on it, whose solution it knows.

Answers are n lines of n numbers separated by single spaces. Errors are [i, j, kind] with row i and column j from 0 and
kind `row`, `col` or `box` (the paper's prompts call it subgrid); with `name_givens` also `given`. To the simulated
model every empty cell is a decision; givens are kept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.capabilities import Individual
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE_PAPER, Puzzle, PuzzleSimulator, SolvedPuzzle
from evorun.tasks.sudoku import metrics, operators, reading
from evorun.tasks.sudoku.grid import EMPTY, join_cells, read_board, read_cells

_ERROR = re.compile(r"[\s(\[]*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*,\s*[\"']?(\w+)[\"']?[\s)\],;.]*", re.ASCII)
_SYNONYMS = {"column": "col", "subgrid": "box"}


class Sudoku(Puzzle):
    """Sudoku with boxes of 2 to 5 cells per side. A problem's data: `box`, and `grid` with dots for empty cells."""

    name = "sudoku"
    scores = (
        *Puzzle.scores,
        Score(metrics.SCORE, 0, 100),
        Score(metrics.SCORE_PAPER, 0, 100),
        Score(PENALISED_SCORE_PAPER, 0, 100),
    )
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Puzzle.prompt_folders)

    def __init__(self, *, name_givens: bool = False, **settings: Any) -> None:
        """Compile the prompts; see `Puzzle`. name_givens: see `SudokuConfig`."""
        super().__init__(**settings)
        self._name_givens = name_givens
        self._kinds = metrics.KINDS if name_givens else metrics.UNITS

    def puzzle_values(self, problem: Problem) -> Mapping[str, Any]:
        box = problem.data["box"]
        return {"size": box * box, "box": box, "instance": problem.data["grid"], "name_givens": self._name_givens}

    def read_answer(self, problem: Problem, block: str) -> str:
        answer = reading.read(block, problem.data["box"] ** 2)
        if answer == problem.data["grid"].replace(EMPTY, "0"):
            raise ValueError("expected a completed grid, got the puzzle")
        return answer

    def closing_passages(self, text: str) -> Iterable[str]:
        """Return the whole text: the reader finds the grid in it, and blank lines may stand between its bands."""
        return (text,)

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return the grid with a uniform random number of 1..n in every empty cell."""
        board = read_board(problem)
        size = board.layout.size
        drawn = rng.integers(1, size + 1, size * size).tolist()
        return join_cells([board.givens.get(cell, str(number)) for cell, number in enumerate(drawn)], size)

    def measure(self, problem: Problem, answer: str | None) -> Grade:
        return metrics.measure(read_board(problem), answer)

    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        return tuple(error for error in metrics.findings(read_board(problem), answer) if error[2] in self._kinds)

    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return one line per error: `i,j,kind`."""
        return "\n".join(f"{i},{j},{kind}" for i, j, kind in findings)

    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Read lines of `i,j,kind`, each once; None without any, or with any other line."""
        size = problem.data["box"] ** 2
        errors: dict[tuple[int, int, str], None] = {}
        for line in filter(str.strip, block.splitlines()):
            found = _ERROR.fullmatch(line)
            if found is None:
                return None
            i, j, kind = int(found[1]), int(found[2]), found[3].lower()
            kind = _SYNONYMS.get(kind, kind)
            if i >= size or j >= size or kind not in self._kinds:
                return None
            errors[i, j, kind] = None
        return tuple(list(error) for error in errors) or None

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Return the child of ECO; it draws nothing."""
        return operators.crossover(read_board(problem), first, second, self.response)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return the outcome of EMO."""
        return operators.mutate(read_board(problem), individual, rng, self.response)


class SolvedSudoku(SolvedPuzzle):
    """A puzzle with its solution."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        board = read_board(problem)
        self._size = board.layout.size
        self._right = read_cells(solution)
        self._empty = [cell for cell in range(len(self._right)) if cell not in board.givens]

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        cells = list(self._right)
        for cell, luck in zip(self._empty, rng.random(len(self._empty)).tolist(), strict=True):
            if luck >= skill:
                cells[cell] = self._draw_wrong_number(cell, rng)
        return join_cells(cells, self._size)

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        shown = [read_cells(answer) for answer in answers]
        cells = list(self._right)
        lucks = rng.random((len(self._empty), 3)).tolist()
        for cell, (merging, mending, pick) in zip(self._empty, lucks, strict=True):
            right = self._right[cell]
            wrong = [other[cell] for other in shown if other[cell] != right]
            # A cell counts as right where all answers agree on it, or one of them has it right and the merging is
            # lucky.
            good = not wrong or (len(wrong) < len(shown) and merging < choice)
            if good and mending < slip:
                cells[cell] = self._draw_wrong_number(cell, rng)
            elif not good and mending >= repair:
                cells[cell] = wrong[int(pick * len(wrong))]
        return join_cells(cells, self._size)

    def share_right(self, answer: str) -> float:
        cells = read_cells(answer)
        return sum(cells[cell] == self._right[cell] for cell in self._empty) / max(1, len(self._empty))

    def _draw_wrong_number(self, cell: int, rng: np.random.Generator) -> str:
        """Return another number in 1..n than the right one."""
        number = 1 + int(rng.integers(self._size - 1))
        return str(number + (number >= int(self._right[cell])))


class SudokuSimulator(PuzzleSimulator):
    """Fills a grid cell by cell."""

    solved = SolvedSudoku

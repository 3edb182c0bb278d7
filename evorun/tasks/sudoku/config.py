"""Configuration of the task: how large the puzzles are and how much of them is left to fill."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from evorun.errors import ConfigError, within
from evorun.tasks.base import Problem
from evorun.tasks.puzzles.config import Draft, Instance, PuzzleConfig
from evorun.tasks.sudoku import files
from evorun.tasks.sudoku.generator import MOST_EMPTY, emptied, random_grid
from evorun.tasks.sudoku.grid import BOXES, written
from evorun.tasks.sudoku.simulator import SudokuSimulator
from evorun.tasks.sudoku.task import Sudoku


@dataclass(kw_only=True)
class SudokuConfig(PuzzleConfig):
    """Sudoku puzzles with one solution each (section 3.1).

    `data`: a file as `files` describes; its first puzzles are used, and lines after them are not read. Their sizes are
    the file's, and `box` and `empty_cells` do not apply to them.
    """

    task_class = Sudoku
    simulator = SudokuSimulator

    box: int
    """Rows and columns of a box, 2 to 5; the grid has box**2 rows and columns."""
    empty_cells: int
    """Cells to fill, exactly as many in every puzzle."""
    name_givens: bool
    """Tell models that the puzzle's numbers must stay, and name each that was changed as an error of the kind `given`,
    which the paper's templates and detector do not; metrics count such changes anyway."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("task.box", self.box, BOXES[0], BOXES[-1])
        if self.data is None and not 1 <= self.empty_cells <= MOST_EMPTY[self.box]:
            raise ConfigError(
                f"task.empty_cells: expected a number in [1, {MOST_EMPTY[self.box]}] with task.box={self.box}, got "
                f"{self.empty_cells}; with more, hardly any puzzle has a single solution"
            )

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw a completed grid. It decides the split, so that no two splits share even a solution."""
        # Seeded from the stream: shuffling is most of what is drawn, and `Random` does that in place.
        random = Random(int(rng.integers(1 << 62)))
        solution = random_grid(self.box, random)
        return Draft(bytes(solution), partial(self._emptied, solution, random))

    def make_task(self, instances: Sequence[Instance]) -> Sudoku:
        return Sudoku(
            prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars, name_givens=self.name_givens
        )

    def more_room(self) -> str:
        return "raise task.box, or bring task.empty_cells nearer to half of the cells"

    def read_data(self, path: Path) -> Iterator[Callable[[], Instance]]:
        return files.read(path)

    def _emptied(self, solution: list[int], random: Random) -> Instance | None:
        """Return a puzzle with this solution; None when the cells that were tried could not be emptied."""
        values = emptied(solution, self.box, self.empty_cells, random)
        if values is None:
            return None
        size = self.box**2
        problem = Problem(id="", stratum=f"{size}x{size}", data={"box": self.box, "grid": written(values, size)})
        return Instance(problem=problem, solution=written(solution, size))

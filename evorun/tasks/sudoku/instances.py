"""Sudoku's puzzles: generated with a given size and number of empty cells, or read from files.

Files are text with one grid per line, or JSONL. Text: the cells in reading order without blanks, `.` or `0` where they
are empty; 81 characters for 9 x 9, and 16, 256 or 625, where letters go on after 9 (A is 10). Empty lines and lines
that begin with `#` are skipped. JSONL (by the file's ending): one object per line with such a `puzzle`; its optional
`id` becomes the problem's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from evorun.errors import ConfigError, DataError
from evorun.tasks.base import Problem
from evorun.tasks.puzzles.instances import Draft, Instance, PuzzleConfig
from evorun.tasks.sudoku.grid import BOXES, format_grid, layout
from evorun.tasks.sudoku.solver import GaveUp, Search
from evorun.tasks.sudoku.sudoku import Sudoku, SudokuSimulator

MAX_EMPTY = {2: 12, 3: 58, 4: 160, 5: 330}
"""Most empty cells that can be reached in practice, by box. For box 2, no puzzle has more."""
# Guesses after which a random grid is restarted (a 25 x 25 grid takes some 500)
_GRID_GUESSES = 1000
# Guesses to show that one cell is superfluous; after them the cell keeps its number
_REMOVAL_GUESSES = 30


def random_grid(box: int, random: Random) -> list[int]:
    """Return a completed grid in reading order. Every grid is possible, but not all are equally probable."""
    # Some random orders lead to very long searches; trying another order is faster.
    search = Search(box, max_guesses=_GRID_GUESSES, random=random)
    while True:
        try:
            return search.solve([0] * box**4, 1)[0]
        except GaveUp:
            continue


def remove_numbers(grid: list[int], box: int, empty: int, random: Random) -> list[int] | None:
    """Return the grid with exactly `empty` cells 0 and this only solution; None when this try fails.

    Each cell is tried once, in random order: a cell that is needed now is needed with fewer clues, too.
    """
    search = Search(box, max_guesses=_REMOVAL_GUESSES)
    peers = layout(box).peers
    values = list(grid)
    for cell in random.sample(range(len(values)), len(values)):
        if not empty:
            break
        values[cell] = 0
        # Where the peers exclude all other numbers, no search is needed: so it is for most of the first cells.
        excluded = {values[peer] for peer in peers[cell]} - {0}
        if len(excluded) == box * box - 1 or _forced(search, values, cell, grid[cell]):
            empty -= 1
        else:
            values[cell] = grid[cell]
    return None if empty else values


def _forced(search: Search, values: list[int], cell: int, number: int) -> bool:
    """Return whether a cell can have no other number, which keeps the solution the only one."""
    try:
        return not search.solve(values, 1, without=(cell, number))
    except GaveUp:
        return False


_SYMBOLS = "123456789ABCDEFGHIJKLMNOP"
_BOX_BY_LENGTH = {box**4: box for box in BOXES}
# A longer line is cut, and then rejected: no file can fill the memory
_LINE_BYTES = 1 << 20
# Most guesses per puzzle, some seconds; the hardest 9 x 9 puzzles take about a thousand
_MAX_GUESSES = 20_000
# Most solutions that are counted of one puzzle
_MAX_COUNTED = 100


@dataclass(kw_only=True)
class SudokuConfig(PuzzleConfig):
    """Sudoku puzzles with one solution each (section 3.1).

    `data`: a file as this module describes; its first puzzles are used, and later lines are not read. Their sizes
    are the file's; `box` and `empty_cells` do not apply.
    """

    task_class = Sudoku
    simulator = SudokuSimulator

    box: Annotated[int, Meta(ge=BOXES[0], le=BOXES[-1])]
    """Rows and columns of a box, 2 to 5; the grid has box**2 rows and columns."""
    empty_cells: int
    """Empty cells, the same number in every puzzle."""
    name_givens: bool
    """Tell models that the puzzle's numbers must stay, and name each that was changed as an error of the kind `given`,
    as the paper's templates and detector do not; metrics count such changes anyway."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data is None and not 1 <= self.empty_cells <= MAX_EMPTY[self.box]:
            raise ConfigError(
                f"task.empty_cells: expected a number in [1, {MAX_EMPTY[self.box]}] with task.box={self.box}, got "
                f"{self.empty_cells}; with more, hardly any puzzle has a single solution"
            )

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw a completed grid. It decides the split, so that no two splits share even a solution."""
        # Seeded from the stream: most draws are shuffles, which `Random` does in place.
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
        return read_puzzles(path)

    def _emptied(self, solution: list[int], random: Random) -> Instance | None:
        """Return a puzzle with this solution; None when the cells that were tried could not be emptied."""
        values = remove_numbers(solution, self.box, self.empty_cells, random)
        if values is None:
            return None
        size = self.box**2
        problem = Problem(id="", stratum=f"{size}x{size}", data={"box": self.box, "grid": format_grid(values, size)})
        return Instance(problem=problem, solution=format_grid(solution, size))


class Record(msgspec.Struct):
    """A line of a JSONL file; other fields are ignored."""

    puzzle: str
    id: str | None = None


def read_puzzles(path: Path) -> Iterator[Callable[[], Instance]]:
    """Yield, per puzzle of the file, a function that solves it.

    Raises DataError naming file and line for an unreadable record or a repeated id; so does solving a puzzle that
    does not have exactly one solution.
    """
    first_uses: dict[str, str] = {}
    for where, number, text in _lines_with_content(path):
        try:
            record = msgspec.json.decode(text, type=Record) if path.suffix == ".jsonl" else Record(text)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise DataError(f'{where}: expected {{"puzzle": "53..7...."}}, got a record with: {error}') from error
        name = record.id or f"line_{number:04d}"
        if name in first_uses:
            raise DataError(f"{where}: id '{name}' is already used in {first_uses[name]}")
        first_uses[name] = where
        puzzle = record.puzzle.strip()
        box = _BOX_BY_LENGTH.get(len(puzzle))
        if box is None:
            sizes = ", ".join(map(str, _BOX_BY_LENGTH))
            raise DataError(f"{where}: expected {sizes} characters, one per cell, got {len(puzzle)}")
        size = box * box
        values = []
        for character in puzzle:
            value = 0 if character in ".0" else _SYMBOLS.find(character.upper()) + 1 or -1
            if not 0 <= value <= size:
                raise DataError(f"{where}: expected '.', '0' or one of {_SYMBOLS[:size]}, got {character!r}")
            values.append(value)
        # The solution is computed when the instance is used: a file may hold millions of puzzles.
        problem = Problem(id=name, stratum=f"{size}x{size}", data={"box": box, "grid": format_grid(values, size)})
        yield partial(_solved, problem, values, where)


def _lines_with_content(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield `FILE:LINE`, number and text of each line that is neither blank nor a comment."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: expected a regular file")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LINE_BYTES), b""), 1):
                where = f"{path}:{number}"
                text = line.decode("utf-8-sig").strip()
                if text and not text.startswith("#"):
                    yield where, number, text
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: expected text in UTF-8: {error.reason}") from error


def _solved(problem: Problem, values: list[int], where: str) -> Instance:
    box = problem.data["box"]
    try:
        found = Search(box, max_guesses=_MAX_GUESSES).solve(values, _MAX_COUNTED)
    except GaveUp as error:
        raise DataError(f"{where}: the puzzle's solutions could not be counted in {_MAX_GUESSES} guesses") from error
    if len(found) != 1:
        count = f"{_MAX_COUNTED} or more" if len(found) == _MAX_COUNTED else str(len(found))
        raise DataError(f"{where}: expected a puzzle with exactly one solution, this one has {count}")
    return Instance(problem=problem, solution=format_grid(found[0], box * box))

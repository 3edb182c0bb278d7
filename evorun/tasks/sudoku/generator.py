"""Making puzzles: empty cells of a random completed grid while its solution stays the only one."""

from random import Random

from evorun.tasks.sudoku.grid import layout
from evorun.tasks.sudoku.solver import GaveUp, Search

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

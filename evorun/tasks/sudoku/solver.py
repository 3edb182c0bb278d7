"""Solving: singles as far as they go, then a guess at the cell with the fewest candidates.

The candidates of a cell are bits of an integer: bit v - 1 stands for the number v.
"""

from collections.abc import Sequence
from random import Random

from evorun.tasks.sudoku.grid import Layout, layout


class GaveUp(Exception):
    """The search needed more guesses than it was allowed."""


class Search:
    """A search for the solutions of puzzles of one size."""

    def __init__(self, box: int, *, max_guesses: int | None = None, random: Random | None = None) -> None:
        """max_guesses: most guesses per call (None: no limit). random: draws the order of guesses; None: ascending."""
        self._layout = layout(box)
        self._all = (1 << self._layout.size) - 1
        self._max_guesses = max_guesses
        self._random = random
        self._guesses = 0

    def solve(self, values: Sequence[int], limit: int, *, without: tuple[int, int] | None = None) -> list[list[int]]:
        """Return the first `limit` solutions, or all when there are fewer.

        values: the numbers in reading order, 0 for an empty cell. without: a cell and a number that it may not have.
        Raises GaveUp when the guesses run out.
        """
        candidates = [self._all] * len(values)
        if without is not None:
            cell, number = without
            candidates[cell] &= ~(1 << number - 1)
        # Per call: a search object is used for many puzzles.
        self._guesses = 0
        found: list[list[int]] = []
        decided = [(cell, 1 << value - 1) for cell, value in enumerate(values) if value]
        if _decide(self._layout, candidates, decided):
            self._extend(candidates, found, limit)
        return found

    def _extend(self, candidates: list[int], found: list[list[int]], limit: int) -> None:
        """Add the solutions within these candidates, from which decided cells have been propagated."""
        if not _fill_singles(self._layout, candidates, self._all):
            return
        cell = self._narrowest(candidates)
        if cell is None:
            found.append([bit.bit_length() for bit in candidates])
            return
        bits = [1 << index for index in range(self._layout.size) if candidates[cell] >> index & 1]
        if self._random:
            self._random.shuffle(bits)
        for bit in bits:
            self._guesses += 1
            if self._max_guesses is not None and self._guesses > self._max_guesses:
                raise GaveUp
            # A list of small integers: copying it is cheaper than undoing what propagation changed.
            tried = candidates.copy()
            if _decide(self._layout, tried, [(cell, bit)]):
                self._extend(tried, found, limit)
            if len(found) >= limit:
                return

    def _narrowest(self, candidates: Sequence[int]) -> int | None:
        """Return the undecided cell with the fewest candidates, None when all are decided."""
        best, fewest = None, self._layout.size + 1
        for cell, mask in enumerate(candidates):
            count = mask.bit_count()
            if 1 < count < fewest:
                best, fewest = cell, count
                # No undecided cell has fewer.
                if count == 2:
                    break
        return best


def _decide(board: Layout, candidates: list[int], decided: list[tuple[int, int]]) -> bool:
    """Decide cells and propagate them to their peers; return False at a contradiction."""
    peers = board.peers
    while decided:
        cell, bit = decided.pop()
        if not candidates[cell] & bit:
            return False
        candidates[cell] = bit
        for peer in peers[cell]:
            old = candidates[peer]
            if old & bit:
                left = old ^ bit
                if not left:
                    return False
                candidates[peer] = left
                if not left & (left - 1):
                    decided.append((peer, left))
    return True


def _fill_singles(board: Layout, candidates: list[int], everything: int) -> bool:
    """Decide every number that has one cell left in a unit, until there is none; return False at a contradiction."""
    progress = True
    while progress:
        progress = False
        for unit in board.units:
            once = twice = known = 0
            for cell in unit:
                mask = candidates[cell]
                twice |= once & mask
                once |= mask
                if not mask & (mask - 1):
                    known |= mask
            # A number has no cell left in this unit.
            if once != everything:
                return False
            # Numbers with one cell left, less those that are decided there already.
            single = once & ~twice & ~known
            if single:
                progress = True
                places = [(cell, candidates[cell] & single) for cell in unit if candidates[cell] & single]
                # Two such numbers in one cell contradict each other.
                if any(bit & (bit - 1) for _, bit in places) or not _decide(board, candidates, places):
                    return False
    return True

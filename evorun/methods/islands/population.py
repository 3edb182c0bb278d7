"""Programs on islands: a grid or a list of the fittest on each, migration between them, and novelty.

Grid: MAP-Elites as in OpenEvolve, with a cell for each length and difference from the programs seen first. Novelty is
the standard library's ratio of matching words (difflib); the papers compare embeddings.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from statistics import mean

from evorun.runs.candidates import Candidate

Cell = tuple[int, int]
"""Bins of a program's length and of its difference from others."""
REFERENCES = 20
"""Programs that a difference is measured from: the first different ones (OpenEvolve: `diversity_reference_size`)."""
_WORD = re.compile(r"\w+|[^\w\s]")
_MAX_WORDS = 2000
"""Words of a program that a comparison reads (ours): its time grows with their square."""


@dataclass(frozen=True)
class Member:
    """A program on an island, or in several after migration."""

    candidate: Candidate
    fitness: float
    """In [0, 100]."""
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        return self.candidate.answer or ""


def split_words(program: str) -> tuple[str, ...]:
    """Return a program's words and signs, as comparisons use them."""
    return tuple(_WORD.findall(program)[:_MAX_WORDS])


def is_similar(first: Sequence[str], second: Sequence[str], limit: float) -> bool:
    """Return whether the share of matching words of two programs exceeds a limit; 1 only for equal ones."""
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)  # cheap upper bounds first
    return first == second or all(bound() > limit for bound in bounds)


def rough_difference(first: str, second: str) -> float:
    """Return OpenEvolve's quick difference of two programs: by length, lines and characters in use."""
    if first == second:
        return 0.0
    lines = abs(first.count("\n") - second.count("\n"))
    return 0.1 * abs(len(first) - len(second)) + 10 * lines + 0.5 * len(set(first) ^ set(second))


class Features:
    """Coordinates of programs in the grid; each axis spans what it has seen, so that bins widen with the search."""

    def __init__(self, bins: int) -> None:
        self._bins = bins
        self._references: list[str] = []
        self._spans: list[tuple[float, float]] = [(float("inf"), float("-inf"))] * 2

    def measure(self, program: str) -> tuple[float, float]:
        """Return a program's length and its mean difference from those seen first, of which it may become one."""
        others = self._references or [program]
        values = float(len(program)), mean(rough_difference(program, other) for other in others)
        if len(self._references) < REFERENCES and program not in self._references:
            self._references.append(program)
        self._spans = [
            (min(low, value), max(high, value)) for (low, high), value in zip(self._spans, values, strict=True)
        ]
        return values

    def find_cell(self, measured: tuple[float, float]) -> Cell:
        """Return the cell of what was measured, by the spans of now."""
        length, difference = (
            min(self._bins - 1, int((value - low) / (high - low) * self._bins)) if high > low else 0
            for value, (low, high) in zip(measured, self._spans, strict=True)
        )
        return length, difference

    def cell(self, program: str) -> Cell:
        """Return the cell of a program, which counts among those seen from now on."""
        return self.find_cell(self.measure(program))


@dataclass
class Island:
    """The members of an island, fittest first; of equally fit ones the earlier comes first."""

    capacity: int
    cells: dict[Cell, Member] | None
    """The fittest member of each cell; None without a grid."""
    members: list[Member] = field(default_factory=list)
    received: set[str] = field(default_factory=set)
    """Ids of those that came by migration, which do not migrate again (OpenEvolve)."""

    @property
    def best(self) -> Member | None:
        return self.members[0] if self.members else None

    def add(self, member: Member, cell: Cell) -> bool:
        """Take a member in, unless a fitter one holds its cell or all places; return whether it stays."""
        if any(other.candidate.id == member.candidate.id for other in self.members):
            return False
        if self.cells is not None:
            holder = self.cells.get(cell)
            if holder is not None and holder.fitness >= member.fitness:
                return False
            self.cells[cell] = member
            self.members = [other for other in self.members if other is not holder]
        place = bisect_right(self.members, -member.fitness, key=lambda other: -other.fitness)
        self.members.insert(place, member)
        for dropped in self.members[self.capacity :]:
            if self.cells is not None:
                self.cells = {place: other for place, other in self.cells.items() if other is not dropped}
        del self.members[self.capacity :]
        return member in self.members


def migrate(
    islands: Sequence[Island], share: float, cell: Callable[[str], Cell], *, both_ways: bool, keep_best: bool
) -> int:
    """Copy the fittest share of each island to its neighbour in a ring, at least one member; return how many moved.

    both_ways: to both neighbours. keep_best: all but the fittest migrate (Shinka's elitism). All are chosen before any
    moves.
    """
    moves: list[tuple[int, Member]] = []
    for number, island in enumerate(islands):
        ready = [member for member in island.members if member.candidate.id not in island.received]
        count = max(1, int(share * len(island.members)))
        targets = {
            (number + 1) % len(islands),
            (number - 1) % len(islands) if both_ways else (number + 1) % len(islands),
        }
        for member in ready[keep_best : keep_best + count]:
            moves += [(target, member) for target in sorted(targets - {number})]
    moved = 0
    for target, member in moves:
        if islands[target].add(member, cell(member.program)):
            islands[target].received.add(member.candidate.id)
            moved += 1
    return moved


def find_similar(member_words: Sequence[str], others: Iterable[Member], limit: float) -> Member | None:
    """Return the first member that a program is too similar to."""
    return next((other for other in others if is_similar(member_words, other.words, limit)), None)

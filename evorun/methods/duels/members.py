"""All candidates of a search: those in use in memory, and the others, with their texts, in the run's archive."""

from array import array
from collections.abc import Collection, Sequence
from typing import overload

import msgspec

from evorun.runs.archive import Archive
from evorun.runs.candidates import Candidate
from evorun.tasks.capabilities import Explanation


class Member(msgspec.Struct):
    """A candidate, and what judges said of it in the last duel that it won, and in the last that it lost."""

    candidate: Candidate
    win: Explanation = Explanation()
    loss: Explanation = Explanation()


class Members(Sequence[Candidate]):
    """Candidates in the order of their arrival; who is looked at is in memory until the next `keep`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._in_memory: dict[int, Member] = {}
        self._places = array("q")
        """Of each, its place in the archive; -1 while it has none."""

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.member(index).candidate

    def append(self, candidate: Candidate) -> None:
        """Add a candidate, in memory."""
        self._in_memory[len(self)] = Member(candidate)
        self._places.append(-1)

    def member(self, index: int) -> Member:
        """Return a member, which stays in memory and may be changed until the next `keep`."""
        index = range(len(self))[index]  # from the end, and IndexError, as lists have it
        if index not in self._in_memory:
            self._in_memory[index] = self._archived(index)
        return self._in_memory[index]

    def read(self, index: int) -> Candidate:
        """Return a candidate, and leave it where it is."""
        member = self._in_memory.get(index)
        return (member or self._archived(index)).candidate

    def indices_by_id(self) -> dict[str, int]:
        """Return the index of each candidate in memory by its id."""
        return {member.candidate.id: index for index, member in self._in_memory.items()}

    def keep(self, indices: Collection[int]) -> None:
        """Keep these in memory and put the others into the archive."""
        for index in self._in_memory.keys() - set(indices):
            self._places[index] = self._archive.put(self._in_memory.pop(index))

    def _archived(self, index: int) -> Member:
        return self._archive.get(self._places[index], Member)

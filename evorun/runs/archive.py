"""The archive of a run: structs moved out of memory into an anonymous file that ends with the process.

A resumed run rebuilds them from its journal, so they need neither outlive the process nor be flushed to the disk.
"""

import os
import tempfile
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import TypeVar, overload

import msgspec
from msgspec.structs import replace

from evorun.errors import RunDirectoryError
from evorun.runs.candidates import Candidate, CandidateId

T = TypeVar("T", bound=msgspec.Struct)

_LENGTH_BYTES = 4


class Archive:
    """A store of structs, each read back by its offset. It belongs to one event loop."""

    def __init__(self, folder: Path | None = None) -> None:
        """Set the folder of the file, by default that of temporary files; the first struct creates it."""
        self._folder = folder
        self._end = 0

    @cached_property
    def _file(self) -> FileIO:
        # unbuffered: a struct may be read right after it was put
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def put(self, item: msgspec.Struct) -> int:
        """Store a struct and return its offset. Raises RunDirectoryError when the disk is full."""
        body = msgspec.msgpack.encode(item)
        offset, self._end = self._end, self._end + _LENGTH_BYTES + len(body)
        remaining = memoryview(len(body).to_bytes(_LENGTH_BYTES) + body)
        try:
            while remaining:  # a write to a disk that is nearly full may be short
                remaining = remaining[os.pwrite(self._file.fileno(), remaining, self._end - len(remaining)) :]
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise RunDirectoryError(
                f"cannot keep candidates that have left the pool in a file of {folder}: {error.strerror}"
            ) from error
        return offset

    def get(self, offset: int, kind: type[T]) -> T:
        """Return the struct stored at an offset; `kind` is its type."""
        descriptor = self._file.fileno()
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, offset))
        return msgspec.msgpack.decode(os.pread(descriptor, length, offset + _LENGTH_BYTES), type=kind)


class CandidatesOnDemand(Sequence[Candidate]):
    """A sequence of candidates, each of which is built when it is accessed."""

    @abstractmethod
    def at(self, index: int) -> Candidate:
        """Return the candidate at an index in [0, len)."""

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self.at(i) for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            index = range(len(self))[index]  # negative indices and IndexError as for lists
        return self.at(index)


class ArchivedCandidates(CandidatesOnDemand):
    """Candidates in the order of their arrival, all of them in the archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def at(self, index: int) -> Candidate:
        return self._archive.get(self._offsets[index], Candidate)

    def extend(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates. Raises RunDirectoryError when the disk is full."""
        self._offsets.extend(map(self._archive.put, candidates))


class Snapshot(CandidatesOnDemand):
    """The candidates of one or more lists at this moment, list by list; later arrivals are not part of it."""

    def __init__(self, *lists: ArchivedCandidates, survivors: Collection[CandidateId] = ()) -> None:
        """survivors: ids of candidates to mark as survivors, in addition to those already marked."""
        self._lists = lists
        self._ends = list(accumulate(map(len, lists)))
        self._survivors = frozenset(survivors)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, index: int) -> Candidate:
        number = bisect_right(self._ends, index)
        candidate = self._lists[number].at(index - (self._ends[number - 1] if number else 0))
        return replace(candidate, survivor=True) if candidate.id in self._survivors else candidate

"""JSONL records of a run: appended while problems finish in any order, put in the problems' order at the end.

What a problem writes is a function of the journal. So a resumed run, which produces the same records again, skips
those that the file already holds: nothing written is ever taken back, and the finished file does not depend on how
often the run was interrupted.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import msgspec

from evorun.errors import RunDirectoryError

_ENCODER = msgspec.json.Encoder(enc_hook=str)


class OfProblem(Protocol):
    """A record that belongs to a problem."""

    @property
    def problem(self) -> str:
        """The problem's id."""
        ...


class _ProblemOf(msgspec.Struct):
    problem: str


_problem_of = msgspec.json.Decoder(_ProblemOf)


class RecordFile:
    """One JSONL file whose records carry the field `problem`; a problem's records are appended in order."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending, keeping its complete lines. Raises RunDirectoryError when that fails."""
        self.path = path
        self._written: Counter[str] = Counter()
        self._offered: Counter[str] = Counter()
        with _explained(path):
            keep = 0
            if path.exists():
                for line in complete_lines(path):
                    self._written[_problem_of.decode(line).problem] += 1
                    keep += len(line) + 1
                os.truncate(path, keep)
            self._file = FileIO(path, "ab")

    def append(self, records: Sequence[OfProblem]) -> None:
        """Append the records that the file does not hold yet, in one write."""
        fresh = [record for record in records if self._is_fresh(record.problem)]
        remaining = memoryview(b"".join(_ENCODER.encode(record) + b"\n" for record in fresh))
        with _explained(self.path):
            while remaining:  # an unbuffered write may be short
                remaining = remaining[self._file.write(remaining) :]

    def _is_fresh(self, problem: str) -> bool:
        self._offered[problem] += 1
        return self._offered[problem] > self._written[problem]

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def finish(self, problem_ids: Sequence[str]) -> None:
        """Close the file and put its records in the order of `problem_ids`, atomically."""
        self.close()
        spans: dict[str, list[tuple[int, int]]] = {problem: [] for problem in problem_ids}
        offset = 0
        for line in complete_lines(self.path):
            spans.setdefault(_problem_of.decode(line).problem, []).append((offset, len(line) + 1))
            offset += len(line) + 1
        ordered = self.path.with_suffix(".ordered")
        with _explained(self.path), self.path.open("rb") as source, ordered.open("wb") as target:
            for problem_spans in spans.values():
                for start, length in problem_spans:
                    source.seek(start)
                    target.write(source.read(length))
            target.flush()
            os.fsync(target.fileno())
            os.replace(ordered, self.path)


def complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that end in a newline, without it: a line cut short by a crash is not a record."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file's content so that a crash leaves the old or the new one. Raises RunDirectoryError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with _explained(path):
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def write_records(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Write a whole JSONL file, atomically."""
    write_atomically(path, b"".join(_ENCODER.encode(record) + b"\n" for record in records))


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, msgspec.json.format(_ENCODER.encode(value), indent=2) + b"\n")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunDirectoryError(f"cannot write {path}: {reason}") from error

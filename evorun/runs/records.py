"""JSONL records of a run: appended while problems finish in any order, sorted by problem at the end.

A problem's records are a function of the journal. A resumed run produces the same records again and skips those that
the file already holds. So no record is ever removed, and the finished file does not depend on the number of
interruptions.
"""

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import msgspec

from evorun.errors import ContradictionError, RunDirectoryError
from evorun.runs.files import bounded_lines, open_regular, replace_atomically

_ENCODER = msgspec.json.Encoder(enc_hook=str)


class HasProblem(Protocol):
    """A record that belongs to a problem."""

    @property
    def problem(self) -> str:
        """The problem's id."""
        ...


class _HasProblem(msgspec.Struct):
    problem: str


_problem_decoder = msgspec.json.Decoder(_HasProblem)


class RecordFile:
    """One JSONL file whose records carry the field `problem`; a problem's records are appended in order."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending. Raises RunDirectoryError when it cannot be used."""
        self.path = path
        self._written: dict[str, list[bytes]] = defaultdict(list)
        self._offered: Counter[str] = Counter()
        with _explained(path):
            # keep up to the first line that is no record: a power cut can damage the end of a file, and the journal
            # holds what is needed to make the later records again
            keep = 0
            if path.exists():
                for problem, line in _records(path):
                    self._written[problem].append(_digest(line))
                    keep += len(line) + 1
                os.truncate(path, keep)
            self._file = FileIO(path, "ab")
        self._opened_with = keep

    def append(self, records: Sequence[HasProblem]) -> None:
        """Append the records that the file does not hold yet, in one write.

        Raises ContradictionError when the file holds a different record at the same position: another program or other
        data made the directory.
        """
        fresh: list[bytes] = []
        for record in records:
            problem, line = record.problem, _ENCODER.encode(record)
            index = self._offered[problem]
            self._offered[problem] += 1
            written = self._written.get(problem, ())
            if index >= len(written):
                fresh.append(line + b"\n")
            elif written[index] != _digest(line):
                raise ContradictionError(
                    f"{self.path}: record {index + 1} of problem '{problem}' differs from what this run produces: "
                    "restore the file, or remove it, and the run writes it again from the journal; if the code has "
                    "changed since, put the former code back and resume, or start a new run"
                )
        remaining = memoryview(b"".join(fresh))
        with _explained(self.path):
            # unbuffered, so that a reader sees complete records; such a write may be short
            while remaining:
                remaining = remaining[self._file.write(remaining) :]

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def discard_new(self) -> None:
        """Close the file without the records that this process appended. Raises RunDirectoryError."""
        self.close()
        with _explained(self.path):
            os.truncate(self.path, self._opened_with)

    def finish(self, problem_ids: Sequence[str]) -> None:
        """Close the file and sort its records by `problem_ids`, atomically."""
        self.close()
        # only spans are in memory: the texts of candidates can add up to gigabytes
        spans: dict[str, list[tuple[int, int]]] = {problem: [] for problem in problem_ids}
        offset = 0
        for problem, line in _records(self.path):
            spans.setdefault(problem, []).append((offset, len(line) + 1))
            offset += len(line) + 1
        with _explained(self.path), self.path.open("rb") as source, replace_atomically(self.path) as target:
            for problem_spans in spans.values():
                for start, length in problem_spans:
                    source.seek(start)
                    target.write(source.read(length))


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the problem and line of each record, up to the first line that is no record."""
    for line in complete_lines(path):
        try:
            problem = _problem_decoder.decode(line).problem
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        yield problem, line


def _digest(line: bytes) -> bytes:
    # 8 bytes: all digests of a run are in memory, and they only guard against another program's records
    return blake2b(line, digest_size=8).digest()


def complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that end in a newline, without it: a line cut short by a crash is not a record."""
    with open_regular(path) as file:
        for line in bounded_lines(file):
            if not line.endswith(b"\n"):
                return
            yield line[:-1]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file's content so that a crash leaves the old or the new one. Raises RunDirectoryError."""
    with _explained(path), replace_atomically(path) as file:
        file.write(content)


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
        # without the file's name, which the message already has
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunDirectoryError(f"cannot write {path}: {reason}") from error

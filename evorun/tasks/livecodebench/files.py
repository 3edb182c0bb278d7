"""LiveCodeBench's files: finding them, and reading them one line at a time (the release is gigabytes)."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from glob import glob
from pathlib import Path

from evorun.errors import DataError
from evorun.tasks.base import Problem
from evorun.tasks.livecodebench.records import Answers, Layout, ReleaseLayout, layout_of

RELEASE_FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
"""Release v6: each release adds a file to those before it."""
HUB_ID = "livecodebench/code_generation_lite"
SAMPLE = Path(__file__).parent / "sample.jsonl"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A problem, and where its record lies: its hidden tests are read only when it is drawn."""

    problem: Problem
    contest_date: date
    layout: Layout
    path: Path
    line: int
    """Counted from 1."""
    offset: int
    size: int
    """Bytes of the line."""

    @property
    def where(self) -> str:
        """`FILE:LINE`, for errors."""
        return f"{self.path}:{self.line}"

    def answers(self) -> Answers:
        """Read what the record keeps from methods. Raises DataError naming file and line."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                line = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.path}: cannot read: {error.strerror}") from error
        return self.layout.answers(line, self.where)


def find(data: str) -> list[Path]:
    """Return the files that `data` names: a file, a folder, or a pattern such as `FOLDER/lcb_*.jsonl`.

    Of a folder with the release's files, those; of another one, every `*.jsonl`. Raises DataError when there are none,
    or a part of the release is missing.
    """
    place = Path(data).expanduser()
    if place.is_file():
        return [place]
    if not place.is_dir():
        found = sorted(Path(name) for name in glob(str(place)))
        if not found:
            raise DataError(f"task.data: expected a folder, a file or a pattern of files, got '{data}'")
        return found
    if any((place / name).is_file() for name in RELEASE_FILES):
        missing = [name for name in RELEASE_FILES if not (place / name).is_file()]
        if missing:
            raise DataError(
                f"task.data: LiveCodeBench's release v6 is {', '.join(RELEASE_FILES)}; {missing[0]} is missing in "
                f"'{place}'. To work on a part of it, name the files: task.data='{place}/test*.jsonl'"
            )
        return [place / name for name in RELEASE_FILES]
    found = sorted(place.glob("*.jsonl"))
    if not found:
        raise DataError(
            f"task.data: expected {RELEASE_FILES[0]} to {RELEASE_FILES[-1]} of LiveCodeBench's release v6, or other "
            f"*.jsonl files, in '{place}'"
        )
    return found


def is_release(paths: Sequence[Path], entries: Collection[Entry]) -> bool:
    """Say whether these are release v6's files, all of them and in its layout."""
    complete = {path.name for path in paths} == set(RELEASE_FILES)
    return complete and all(isinstance(entry.layout, ReleaseLayout) for entry in entries)


def read(paths: Sequence[Path]) -> list[Entry]:
    """Read the records of these files, hidden tests aside, in order.

    Raises DataError naming file and line for a malformed record or an id that is used twice.
    """
    entries: dict[str, Entry] = {}
    for path in paths:
        layout: Layout | None = None
        offset = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        where = f"{path}:{number}"
                        # All records of a file have the layout of its first.
                        layout = layout or layout_of(line, where)
                        heading = layout.heading(line, where)
                        entry = Entry(heading.problem, heading.contest_date, layout, path, number, offset, len(line))
                        earlier = entries.setdefault(entry.problem.id, entry)
                        if earlier is not entry:
                            raise DataError(f"{where}: id '{entry.problem.id}' is already used in {earlier.where}")
                    offset += len(line)
        except OSError as error:
            raise DataError(f"{path}: cannot read: {error.strerror}") from error
    return list(entries.values())


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without those that ask what an earlier one does; each of these is warned of."""
    first: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        data = entry.problem.data
        earlier = first.setdefault((data["question"], data["starter_code"]), entry)
        if earlier is not entry:
            _log.warning("%s: left out, the same problem as %s", entry.where, earlier.where)
    return list(first.values())

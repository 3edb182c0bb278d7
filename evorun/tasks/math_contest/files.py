"""Contest files: finding them in a folder or on the hub, and reading them (JSON lines, Parquet)."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.errors import DataError
from evorun.tasks import benchmark_files
from evorun.tasks.benchmark_files import FORMATS, records
from evorun.tasks.math_contest.records import Expected, Question, parse_record

SAMPLE = Path(__file__).parent / "sample"
FOLDER = "math"
"""The folder in $EVORUN_DATA."""

_log = logging.getLogger(__name__)


class NotFoundError(DataError):
    """None of the files is there."""


class Source(NamedTuple):
    """Files that belong together."""

    name: str
    """Leads the ids of records that have none of their own."""
    paths: Sequence[Path]


def find(folder: Path, patterns: Sequence[str]) -> list[Source]:
    """Return the folder's files that a pattern fits, each a source. Raises NotFoundError when there are none."""
    if not folder.is_dir():
        raise NotFoundError(f"task.data: expected a folder, or a file in {' or '.join(FORMATS)}, got '{folder}'")
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    if not paths:
        raise NotFoundError(f"task.data: expected {' or '.join(patterns)} in '{folder}', found none")
    return [Source(path.stem, [path]) for path in paths]


def download(place: str) -> Source:
    """Fetch a hub data set's files (`benchmark_files.download_records`) and return them as one source."""
    paths = benchmark_files.download_records(place)
    return Source(place.split("/")[1], paths)


def read(sources: Iterable[Source], expected: Expected) -> list[Question]:
    """Read all sources, in order.

    A problem that is repeated is kept where it comes first, and left out altogether where its answers differ, either
    with a warning. Raises DataError naming file and line for a malformed record or an id used twice.
    """
    seen: dict[str, str] = {}
    first: dict[str, Question] = {}
    disputed = set()
    located = (
        (where, parse_record(record, where, f"{source.name}/{number}", expected))
        for source in sources
        for number, (where, record) in enumerate((one for path in source.paths for one in records(path)), 1)
    )
    for where, question in located:
        identity, text = question.problem.id, question.problem.data["problem"]
        if identity in seen:
            raise DataError(f"{where}: id '{identity}' is already used in {seen[identity]}")
        seen[identity] = where
        earlier = first.setdefault(text, question)
        if earlier is not question:
            _log.warning("%s: left out, the same problem as %s", where, seen[earlier.problem.id])
        # Public collections disagree on some answers, and nothing here could tell which one is right.
        if set(earlier.answers).isdisjoint(question.answers):
            disputed.add(text)
            _log.warning("%s: its answer is another than in %s; left out both", where, seen[earlier.problem.id])
    return [question for text, question in first.items() if text not in disputed]

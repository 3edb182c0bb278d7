"""Contest files: finding them in a folder or on the hub, and reading them (JSON lines, Parquet)."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import msgspec

from evorun.errors import DataError
from evorun.tasks import benchmark_files
from evorun.tasks.math_contest.records import Expected, Question, parse_record

SAMPLE = Path(__file__).parent / "sample"
FOLDER = "math"
"""The folder in $EVORUN_DATA."""
FORMATS = (".jsonl", ".parquet")

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
    """Fetch a hub data set's files and return them.

    place: `OWNER/NAME`, or `OWNER/NAME/PATTERN` for the files that the pattern fits. Raises DataError when the hub
    package is absent, the data set unknown, the network down, or no such file there.
    """
    owner, _, rest = place.partition("/")
    name, _, pattern = rest.partition("/")
    if not owner or not name:
        raise DataError(f"hub: expected OWNER/NAME or OWNER/NAME/PATTERN, got '{place}'")
    hub_id = f"{owner}/{name}"
    patterns = [pattern] if pattern else [f"*{suffix}" for suffix in FORMATS]
    root = benchmark_files.download(hub_id, patterns, "task.source=hub")
    # The hub's cache may hold more files of the data set than were asked for.
    files = sorted(path for path in root.rglob("*") if path.suffix in FORMATS and path.is_file())
    paths = [path for path in files if any(fnmatch(path.relative_to(root).as_posix(), one) for one in patterns)]
    if not paths:
        raise DataError(f"task.source=hub: expected {' or '.join(patterns)} in the data set '{hub_id}', found none")
    return Source(name, paths)


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
        for number, (where, record) in enumerate((one for path in source.paths for one in _records(path)), 1)
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


def _records(path: Path) -> Iterator[tuple[str, object]]:
    """Yield each record with its `FILE:LINE`. Raises DataError where a line is no JSON or the file cannot be read."""
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    for where, _, line in benchmark_files.numbered_lines(path):
        try:
            yield where, msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise DataError(f"{where}: expected one JSON object a line: {error}") from error


def _parquet(path: Path) -> Iterator[tuple[str, object]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError as error:
        raise DataError(f"{path}: reading Parquet files needs pyarrow: pip install 'evorun[hub]'") from error
    try:
        rows = read_table(path).to_pylist()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from error
    except ArrowException as error:
        raise DataError(f"{path}: cannot read as Parquet: {str(error).splitlines()[0]}") from error
    for number, row in enumerate(rows, 1):
        yield f"{path}:{number}", row

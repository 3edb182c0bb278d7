"""The files of benchmarks: found in the user's data folder or on the Hugging Face hub, and read record by record."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evorun.errors import DataError

FORMATS = (".jsonl", ".parquet")
"""Suffixes of hub files that `read_records` reads."""


class Source(NamedTuple):
    """Files whose records are numbered together."""

    name: str
    """Prefix of the ids of records without an id."""
    paths: Sequence[Path]


class Record(NamedTuple):
    """A record of a source, not yet checked."""

    values: Mapping[str, Any]
    source: str
    number: int
    """Counted from 1 over all files of the source."""
    where: str
    """`FILE:LINE`, for errors."""

    def text(self, field: str) -> str:
        """Return a text field, stripped. Raises DataError where it is missing or empty."""
        text = self.values.get(field)
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{self.where}: {field}: expected a non-empty string, got {text!r:.60}")
        return text.strip()


class NotFoundError(DataError):
    """No file of a split or stratum was found."""


class MissingFilesError(DataError):
    """A task's files are missing; the message says how to provide them."""

    def __init__(self, what: str, how: str, wanted: str) -> None:
        """what: description of the files. how: the ways to provide them. wanted: the same in short, for a table."""
        super().__init__(f"{what} were not found: {how}; task.source=sample runs evorun's own small set instead")
        self.wanted = wanted


def default_folder(name: str) -> Path | None:
    """Return $EVORUN_DATA/name if it exists."""
    base = os.environ.get("EVORUN_DATA")
    folder = Path(base).expanduser() / name if base else None
    return folder if folder and folder.is_dir() else None


def read_records(path: Path) -> Iterator[tuple[str, object]]:
    """Yield each record of a file with its `FILE:LINE`; files other than Parquet and CSV are read as JSON lines.

    Raises DataError where a line or the file cannot be read.
    """
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from error
    if path.suffix == ".csv":
        yield from _csv(path, content)
        return
    # Split only at line feeds: `splitlines` would also split at U+2028 and the like, which JSON may hold.
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise DataError(f"{where}: expected one JSON object per line: {error}") from error


def read_sources(sources: Iterable[Source]) -> Iterator[Record]:
    """Yield the records of all sources, in order. Raises DataError as `read_records` does, and for non-objects."""
    for source in sources:
        located = (located for path in source.paths for located in read_records(path))
        for number, (where, values) in enumerate(located, 1):
            if not isinstance(values, Mapping):
                raise DataError(f"{where}: expected a JSON object, got {type(values).__name__}")
            yield Record(values, source.name, number, where)


def _csv(path: Path, content: bytes) -> Iterator[tuple[str, object]]:
    """Yield the rows of a CSV file with a header as objects of strings."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: expected text in UTF-8: {error.reason}") from error
    # some texts are longer than the library's limit, which is the whole process's: never lower it for others
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    begin = 1
    try:
        for row in rows:
            where, begin = f"{path}:{begin}", rows.line_num + 1  # a quoted field may have several lines
            if not row:
                continue
            if not header:
                header = row
                if len(set(header)) < len(header):
                    raise DataError(f"{where}: expected a header with distinct columns, got {', '.join(header)}")
            elif len(row) != len(header):
                raise DataError(f"{where}: expected {len(header)} fields as in the header, got {len(row)}")
            else:
                yield where, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}:{begin}: cannot read as CSV: {error}") from error


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


def download_records(place: str) -> list[Path]:
    """Fetch a hub data set's files in `FORMATS` and return them.

    place: `OWNER/NAME`, or `OWNER/NAME/PATTERN` for the files that match. Raises DataError as `download` does, and
    where no file matches.
    """
    owner, _, rest = place.partition("/")
    name, _, pattern = rest.partition("/")
    if not owner or not name:
        raise DataError(f"hub: expected OWNER/NAME or OWNER/NAME/PATTERN, got '{place}'")
    patterns = [pattern] if pattern else [f"*{suffix}" for suffix in FORMATS]
    root = download(f"{owner}/{name}", patterns, "task.source=hub")
    # The hub's cache may hold more files of the data set than requested.
    files = sorted(path for path in root.rglob("*") if path.suffix in FORMATS and path.is_file())
    paths = [path for path in files if any(fnmatch(path.relative_to(root).as_posix(), pattern) for pattern in patterns)]
    if not paths:
        raise DataError(
            f"task.source=hub: expected {' or '.join(patterns)} in the data set '{owner}/{name}', found none"
        )
    return paths


def download(hub_id: str, patterns: Sequence[str], asked_by: str) -> Path:
    """Fetch the files of a hub data set that match the patterns, and return their folder.

    asked_by: the setting that names the data set, for errors. Raises DataError when the hub package is absent, the data
    set unknown or the network down.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise DataError(f"{asked_by}: downloading needs the hub packages: pip install 'evorun[hub]'") from error
    try:
        return Path(snapshot_download(hub_id, repo_type="dataset", allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{asked_by}: cannot fetch the data set '{hub_id}': {reason}") from error

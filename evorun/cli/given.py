"""Records from a user's JSON Lines file, with errors that name the line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.errors import DataError
from evorun.models.server.wire import without_lone_surrogates

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # Windows editors put it before the first record


def given_records(key: str, path: Path | None, record: type[T], form: str) -> Iterator[tuple[str, T]]:
    """Yield each record of the file that `key` names, with the name of its line; skip blank lines.

    path: None for standard input. form: the expected record, as errors show it. Raises DataError for a file that cannot
    be read and for a line without such a record.
    """
    name = "standard input" if path is None else str(path)
    # Not str.splitlines: a model's text inside a record may contain other line separators, such as U+2028.
    lines = _content(key, path).removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    decoder = msgspec.json.Decoder(record)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            try:
                found = decoder.decode(line)
            except msgspec.DecodeError:  # perhaps half a surrogate pair, which a model's sampled bytes can form
                found = decoder.decode(without_lone_surrogates(line))
        # msgspec does not convert the decoder's error for bytes that are not UTF-8.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{name}, line {number}: expected {form}, got a record with: {error}") from error
        yield f"{name}, line {number}", found


def _content(key: str, path: Path | None) -> bytes:
    if path is None:
        return sys.stdin.buffer.read()
    try:
        if path.exists() and not path.is_file():  # a pipe would block, a device would never end
            raise DataError(f"cannot read {key}={path}: expected a regular file, or {key}=- for a pipe")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {key}={path}: {error.strerror}") from error

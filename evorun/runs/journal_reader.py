"""Reads a run's journal, even somebody else's: every effect with its request and result, to the byte."""

import os
import sqlite3
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec

from evorun.errors import JournalError, RunDirectoryError
from evorun.runs.journal_file import ITEMS, MAX_BYTES, SCHEMA, Effect, Key, Request

T = TypeVar("T")

CACHED_BYTES = 64 << 20
"""Size, before compression, of each table's decoded blocks in memory: effects are read nearly in recorded order."""


class JournalReader(Protocol):
    """The effects of a journal, numbered from 0. All methods raise JournalError for a damaged file."""

    path: Path

    def index(self) -> Iterator[Key]:
        """Yield the key and request digest of each effect, by number; of two with the same key the first counts."""
        ...

    def count(self) -> int:
        """Return the number of effects."""
        ...

    def key(self, number: int) -> Key:
        """Return the key and request digest of an effect."""
        ...

    def result(self, number: int) -> bytes:
        """Return the result of an effect, as JSON."""
        ...

    def effect(self, number: int) -> Effect:
        """Return an effect with its texts."""
        ...

    def spent(self, number: int) -> tuple[str | None, float]:
        """Return the usage and seconds of an effect, without its texts."""
        ...

    def check(self) -> None:
        """Check all checksums."""
        ...

    def close(self) -> None:
        """Close the file; idempotent."""
        ...


def read_journal(path: Path | str) -> Iterator[Effect]:
    """Yield all effects of a journal, in the order of recording. Raises RunDirectoryError or JournalError."""
    journal = open_journal(Path(path))
    try:
        for number, _ in enumerate(journal.index()):
            yield journal.effect(number)
    finally:
        journal.close()


def open_journal(path: Path) -> JournalReader:
    """Open a journal for reading only. Raises RunDirectoryError for any other file."""
    files = [Path(f"{path.resolve()}{suffix}") for suffix in ("-wal", "-shm", "-journal")]
    if not path.is_file() or any(file.exists() and not file.is_file() for file in files):
        raise RunDirectoryError(f"expected a run's journal, found no file {path}")
    # SQLite cannot create WAL's side files on a read-only medium; such a journal is opened as immutable
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False)
        protect(connection)
        schema = read_schema(connection)
    except sqlite3.Error as error:
        raise RunDirectoryError(f"{path} is not a journal of evorun: {error}") from error
    if schema == SCHEMA:
        return BlockReader(path, connection)
    connection.close()
    raise RunDirectoryError(f"{path} is not a journal of evorun: its tables differ")


def protect(connection: sqlite3.Connection) -> None:
    """Take the precautions of sqlite.org/security.html against a file that was made to do harm."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def read_schema(connection: sqlite3.Connection) -> set[str]:
    """Return the statements that made the database, including any views and triggers, which would run on use."""
    statements = connection.execute("SELECT sql FROM sqlite_master LIMIT ?", (len(SCHEMA) + 1,))
    return {sql for (sql,) in statements}


def make_damage_error(path: Path, what: str) -> JournalError:
    """Return the error for a damaged file."""
    return JournalError(f"{path} is damaged ({what}): restore it from a copy, or start a new run")


def decode_result(result: bytes, kind: type[T], what: str, path: Path) -> T:
    """Decode the result of an effect. Raises JournalError for a result that evorun did not write."""
    try:
        return msgspec.json.decode(result, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_damage_error(path, f"the result of {what}: {error}") from error


def make_read_error(path: Path, error: Exception) -> JournalError:
    """Return the error for SQLite's exception: the file is damaged, or SQLite could not read it."""
    if isinstance(error, sqlite3.OperationalError):
        return JournalError(f"cannot read {path}: {error}")
    return make_damage_error(path, str(error))


class BlockReader:
    """A journal as `journal_file` writes it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._keys: _Items[Key] = _Items(path, connection, "keys", Key)
        self._results: _Items[bytes] = _Items(path, connection, "results", bytes)
        self._requests: _Items[Request] = _Items(path, connection, "requests", Request)
        self._texts: _Items[bytes] = _Items(path, connection, "texts", bytes)

    def index(self) -> Iterator[Key]:
        return iter(self._keys)

    def count(self) -> int:
        return self._keys.count()

    def key(self, number: int) -> Key:
        return self._keys[number]

    def result(self, number: int) -> bytes:
        return self._results[number]

    def effect(self, number: int) -> Effect:
        numbers, rest, usage, seconds = self._requests[number]
        texts = [self._texts[text_number] for text_number in numbers]
        if sum(map(len, texts)) > MAX_BYTES:
            raise make_damage_error(self.path, f"request {number} is too long")
        return Effect(*self._keys[number], b"".join([*texts, rest]), self._results[number], usage, seconds)

    def spent(self, number: int) -> tuple[str | None, float]:
        _, _, usage, seconds = self._requests[number]
        return usage, seconds

    def check(self) -> None:
        for table in (self._keys, self._results, self._requests, self._texts):
            table.check()

    def close(self) -> None:
        self._connection.close()


class _Items(Generic[T]):
    """The items of a table, read block by block."""

    def __init__(self, path: Path, connection: sqlite3.Connection, table: str, kind: Any) -> None:
        self._path = path
        self._connection = connection
        self._table = table
        block = Annotated[list[kind], msgspec.Meta(max_length=2 * ITEMS)]
        self._decoder: msgspec.msgpack.Decoder[list[T]] = msgspec.msgpack.Decoder(block)
        self._blocks: dict[int, tuple[list[T], int]] = {}
        """The most recently read blocks and their sizes, by first number; `_firsts`: these numbers, sorted."""
        self._firsts: list[int] = []

    def __getitem__(self, number: int) -> T:
        """Return an item. Raises JournalError when no block holds it, or the block is damaged."""
        index = bisect_right(self._firsts, number) - 1
        if index >= 0:
            first = self._firsts[index]
            items, _ = self._blocks[first]
            if number < first + len(items):
                return items[number - first]
        first, items, size = self._read(number)
        # a journal that is being written packs its small blocks
        for packed in [start for start in self._firsts if first <= start < first + len(items)]:
            del self._blocks[packed]
        while self._blocks and size + sum(kept for _, kept in self._blocks.values()) > CACHED_BYTES:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[first] = items, size
        self._firsts = sorted(self._blocks)
        return items[number - first]

    def __iter__(self) -> Iterator[T]:
        number, end = 0, self._end()
        while number < end:
            first, items, _ = self._read(number)
            yield from items[number - first :]
            number = first + len(items)

    def count(self) -> int:
        """Return the number of items."""
        last = self._end() - 1
        return 0 if last < 0 else last + self._stored(last)[1]

    def check(self) -> None:
        """Check the checksums of all blocks. Raises JournalError for a wrong checksum or a missing block."""
        number, end = 0, self._end()
        while number < end:
            first, count, _ = self._stored(number)
            number = first + count

    def _end(self) -> int:
        """Return a number past the start of the last block, enough to reach it; 0 without blocks."""
        (last,) = self._row(f"SELECT max(first) FROM {self._table}")
        return 0 if last is None else last + 1

    def _read(self, number: int) -> tuple[int, list[T], int]:
        """Return the first number, the items and the size of the block that holds an item."""
        first, count, stored = self._stored(number)
        try:
            body = zlib.decompressobj().decompress(stored, MAX_BYTES)
            items = self._decoder.decode(body)
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise make_damage_error(self._path, f"{self._table} from {first} on: {error}") from error
        if len(items) != count:
            raise make_damage_error(
                self._path, f"{self._table} from {first} on: expected {count} items, got {len(items)}"
            )
        return first, items, len(body)

    def _stored(self, number: int) -> tuple[int, int, bytes]:
        """Return the first number, the count and the stored bytes of the block that holds an item."""
        row = self._row(f"SELECT * FROM {self._table} WHERE first <= ? ORDER BY first DESC LIMIT 1", number)
        if row is None or [type(value) for value in row] != [int, int, bytes, int] or number >= row[0] + row[1]:
            raise make_damage_error(self._path, f"it lacks {self._table} {number}")
        first, count, body, checksum = row
        if zlib.crc32(body) != checksum:
            raise make_damage_error(self._path, f"wrong checksum of {self._table} {first} to {first + count - 1}")
        return first, count, body

    def _row(self, statement: str, *values: int) -> Any:
        try:
            return self._connection.execute(statement, values).fetchone()
        except (sqlite3.Error, OverflowError) as error:
            raise make_read_error(self._path, error) from error

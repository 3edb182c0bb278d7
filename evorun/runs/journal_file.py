"""The journal's file: effects in compressed blocks; a text that several requests share is stored once.

An SQLite database of four tables, each a list of items numbered from 0. A row holds the items from `first` on: a
MessagePack array, compressed by zlib, and its CRC-32.

    keys      (key, digest of the request), one per effect, like the next two
    results   result
    requests  (numbers of texts, rest, usage, seconds): a request is its texts, concatenated, and the rest
    texts     parts of requests

Items that are written together first form a small block, durable at once. When small blocks hold `ITEMS` items, they
are packed into a large one, since similar keys, prompts and schemas compress well together. An item's number never
changes.
"""

import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

JOURNAL = "journal.sqlite"
"""The file's name in a run's folder."""

ITEMS = 1024
"""Items after which small blocks are packed; a packed block holds fewer than twice as many. Larger blocks hardly save
bytes per item and are slower to read one item from (ours)."""
PACKED_BYTES = 4 << 20
"""Size before compression at which fewer items are packed."""
MAX_BYTES = 64 << 20
"""Maximum block size before compression, so that somebody else's small file cannot fill the memory."""
LONG_LINE = 64
"""Length from which a line of a request is stored as a separate text (ours), so that prompts share a solution's
lines."""
REMEMBERED_BYTES = 16 << 20
"""Bytes of texts, and of paragraphs, that a writer recognizes; up to twice this size. Later it stores a recurring text
again."""

_SMALL_BLOCK_LEVEL, _PACKED_BLOCK_LEVEL = 1, 3
"""Compression levels (ours): for packed blocks, level 6 takes twice the time of level 3 and saves a seventh."""

_LINE_END = b"\\n"
"""A line feed in a string of JSON."""
_EMPTY_LINE = 2 * _LINE_END


class Effect(NamedTuple):
    """One recorded effect."""

    key: str
    digest: bytes
    """Digest of the request."""
    request: bytes
    """The request as JSON."""
    result: bytes
    """The result as JSON."""
    usage: str | None
    """Tokens as JSON, for model calls."""
    seconds: float


def digest_request(request: bytes) -> bytes:
    """Return the 16-byte digest that identifies an effect's request."""
    return blake2b(request, digest_size=16).digest()


Key = tuple[str, bytes]
Request = tuple[list[int], bytes, str | None, float]
TABLES = ("keys", "results", "requests", "texts")
_COLUMNS = "(first INTEGER PRIMARY KEY, count INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL)"
SCHEMA = {f"CREATE TABLE {name} {_COLUMNS}" for name in TABLES}


def find_end(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of the next item of a table."""
    end: int = connection.execute(f"SELECT coalesce(max(first + count), 0) FROM {table}").fetchone()[0]
    return end


def truncate(connection: sqlite3.Connection, ends: Mapping[str, int]) -> None:
    """Remove what a writer has appended since each table had this end. Raises sqlite3.Error."""
    with connection:
        for table, end in ends.items():  # a writer packs only its own items, so no block lies across the end
            connection.execute(f"DELETE FROM {table} WHERE first >= ?", (end,))


class Writer:
    """Appends effects to a journal's file, one transaction per call of `write`.

    An error leaves the file unchanged, but the writer then assumes texts that the file lacks: do not use it again.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._keys, self._results, self._requests, self._texts = (_AppendableTable(connection, name) for name in TABLES)
        self._new: list[bytes] = []
        """Texts that are not in the file yet."""
        self._numbers = _RecentTexts(self._number_new_text)
        """The number of each text."""
        self._paragraphs = _RecentTexts(self._number_texts)
        """The numbers of each paragraph's texts; prompts share most paragraphs, so each is split only once."""

    def write(self, effects: Sequence[Effect]) -> int:
        """Append effects and return the number of the first. Raises sqlite3.Error; ValueError for a too large one."""
        first = self._keys.end
        requests: list[Request] = []
        for effect in effects:
            paragraphs, rest = _split_paragraphs(effect.request)
            numbers: list[int] = []
            for paragraph in paragraphs:
                numbers += self._paragraphs[paragraph]
            requests.append((numbers, rest, effect.usage, effect.seconds))
        with self._connection:
            self._keys.append([(effect.key, effect.digest) for effect in effects])
            self._results.append([effect.result for effect in effects])
            self._requests.append(requests)
            self._texts.append(self._new)
        self._new = []
        return first

    def _number_texts(self, paragraph: bytes) -> list[int]:
        return [self._numbers[text] for text in _split_texts(paragraph)]

    def _number_new_text(self, text: bytes) -> int:
        self._new.append(text)
        return self._texts.end + len(self._new) - 1


class _RecentTexts(dict[bytes, T]):
    """A cache by text of the most recent values; `make` computes the missing ones."""

    def __init__(self, make: Callable[[bytes], T]) -> None:
        self._make = make
        self._older: dict[bytes, T] = {}
        self._bytes = 0
        """Of the texts in this dict, without `_older`."""

    def __missing__(self, text: bytes) -> T:
        value = self._older.get(text)
        if value is None:
            value = self._make(text)
        self[text] = value
        self._bytes += len(text)
        if self._bytes > REMEMBERED_BYTES:
            self._older, self._bytes = dict(self), 0
            self.clear()
        return value


class _AppendableTable:
    """A table that items are appended to."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self.end = find_end(connection, name)
        """Number of the next item."""
        self._unpacked: list[Any] = []
        """The last items before `end`, in small blocks."""
        self._unpacked_bytes = 0

    def append(self, items: Sequence[Any]) -> None:
        for start in range(0, len(items), ITEMS):
            self._append(items[start : start + ITEMS])

    def _append(self, items: Sequence[Any]) -> None:
        body = msgspec.msgpack.encode(items)
        self._unpacked += items
        self._unpacked_bytes += len(body)
        first, self.end = self.end, self.end + len(items)
        if len(self._unpacked) < ITEMS and self._unpacked_bytes < PACKED_BYTES:
            self._insert(first, len(items), body, level=_SMALL_BLOCK_LEVEL)
            return
        first = self.end - len(self._unpacked)
        self._connection.execute(f"DELETE FROM {self._name} WHERE first >= ?", (first,))
        self._insert(first, len(self._unpacked), msgspec.msgpack.encode(self._unpacked), level=_PACKED_BLOCK_LEVEL)
        self._unpacked, self._unpacked_bytes = [], 0

    def _insert(self, first: int, count: int, body: bytes, level: int) -> None:
        if len(body) > MAX_BYTES:
            raise ValueError(f"{len(body):,} bytes at once are more than the {MAX_BYTES:,} of a block")
        packed = zlib.compress(body, level)
        row = (first, count, packed, zlib.crc32(packed))
        self._connection.execute(f"INSERT INTO {self._name} VALUES (?, ?, ?, ?)", row)


def _split_paragraphs(request: bytes) -> tuple[list[bytes], bytes]:
    """Split a request after its empty lines, and its last line, which has the seed, from the last paragraph."""
    head, end, rest = request.rpartition(_LINE_END)
    if not end:
        return [], rest
    *paragraphs, last = head.split(_EMPTY_LINE)
    return [*(paragraph + _EMPTY_LINE for paragraph in paragraphs), last + _LINE_END], rest


def _split_texts(paragraph: bytes) -> list[bytes]:
    """Split a paragraph into texts that other paragraphs may share.

    Each long line is a text, and so are the lines between two long ones. Thus a problem, an instruction and each line
    of a solution are separate texts, whichever prompt they occur in.
    """
    texts: list[bytes] = []
    short: list[bytes] = []
    for line in paragraph.split(_LINE_END)[:-1]:
        if len(line) < LONG_LINE:
            short.append(line)
            continue
        if short:
            texts.append(_LINE_END.join([*short, b""]))
            short = []
        texts.append(line + _LINE_END)
    if short:
        texts.append(_LINE_END.join([*short, b""]))
    return texts

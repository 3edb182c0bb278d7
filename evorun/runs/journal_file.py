"""The journal's file: effects in compressed blocks, and each text that stands in many requests once.

An SQLite database of four tables, each a list of items numbered from 0. A row holds the items from `first` on: a
MessagePack array, compressed by zlib, and its CRC-32.

    keys      (key, digest of the request), an effect each; so are the next two
    results   result
    requests  (numbers of texts, rest, usage, seconds): the texts one after another and then the rest are the request
    texts     parts of requests

What is written together is a small block at first, durable at once. Small blocks are packed into a large one when they
have come to `ITEMS`, because equal keys, prompts and schemas compress together; an item's number never changes.
"""

import sqlite3
import zlib
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

JOURNAL = "journal.sqlite"
"""The file's name in a run's folder."""

ITEMS = 1024
"""Items of a packed block, less than twice as many at most: larger ones are hardly smaller an item, and slower to read
one item from (ours)."""
PACKED_BYTES = 4 << 20
"""Size before compression at which fewer items are packed."""
MAX_BYTES = 64 << 20
"""Largest block before compression, so that a small file of somebody else's cannot fill the memory."""
LONG_LINE = 64
"""Length from which a line of a request is a text of its own (ours): a solution's lines, in whatever prompt."""
REMEMBERED_BYTES = 16 << 20
"""Texts that a writer knows again, twice so many bytes at most, and as many of paragraphs; a text that comes again
later is stored again."""

_OF_SMALL, _OF_PACKED = 1, 3
"""Levels of compression (ours): for packed blocks, level 6 takes twice the time of 3 for a seventh of the size."""

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


def digest_of(about: bytes) -> bytes:
    """Return the 16-byte digest by which an effect's request is recognised."""
    return blake2b(about, digest_size=16).digest()


Key = tuple[str, bytes]
Request = tuple[list[int], bytes, str | None, float]
TABLES = ("keys", "results", "requests", "texts")
_COLUMNS = "(first INTEGER PRIMARY KEY, count INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL)"
SCHEMA = {f"CREATE TABLE {name} {_COLUMNS}" for name in TABLES}


class Writer:
    """Appends effects to a journal's file, one transaction for each call of `write`.

    An error leaves the file as it was, but the writer knows texts that are not there: it must not be used again.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._keys, self._results, self._requests, self._texts = (_Appended(connection, name) for name in TABLES)
        self._new: list[bytes] = []
        """Texts that are not in the file yet."""
        self._numbers = _Recent(self._add)
        """The number of each text."""
        self._paragraphs = _Recent(self._cut)
        """The numbers of each paragraph's texts: prompts share most paragraphs, which are so cut once."""

    def write(self, effects: Sequence[Effect]) -> int:
        """Append effects and return the number of the first. Raises sqlite3.Error, or ValueError for one too big."""
        first = self._keys.end
        requests: list[Request] = []
        for effect in effects:
            paragraphs, rest = _paragraphs_of(effect.request)
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

    def _cut(self, paragraph: bytes) -> list[int]:
        return [self._numbers[text] for text in _texts_of(paragraph)]

    def _add(self, text: bytes) -> int:
        self._new.append(text)
        return self._texts.end + len(self._new) - 1


class _Recent(dict[bytes, T]):
    """What is known of the texts that were met lately, made anew for the others."""

    def __init__(self, make: Callable[[bytes], T]) -> None:
        self._make = make
        self._older: dict[bytes, T] = {}
        self._bytes = 0
        """Of the texts that are not the older ones."""

    def __missing__(self, text: bytes) -> T:
        known = self._older.get(text)
        if known is None:
            known = self._make(text)
        self[text] = known
        self._bytes += len(text)
        if self._bytes > REMEMBERED_BYTES:
            self._older, self._bytes = dict(self), 0
            self.clear()
        return known


class _Appended:
    """A table at its end."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self.end: int = connection.execute(f"SELECT coalesce(max(first + count), 0) FROM {name}").fetchone()[0]
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
            self._insert(first, len(items), body, level=_OF_SMALL)
            return
        first = self.end - len(self._unpacked)
        self._connection.execute(f"DELETE FROM {self._name} WHERE first >= ?", (first,))
        self._insert(first, len(self._unpacked), msgspec.msgpack.encode(self._unpacked), level=_OF_PACKED)
        self._unpacked, self._unpacked_bytes = [], 0

    def _insert(self, first: int, count: int, body: bytes, level: int) -> None:
        if len(body) > MAX_BYTES:
            raise ValueError(f"{len(body):,} bytes at once are more than the {MAX_BYTES:,} of a block")
        packed = zlib.compress(body, level)
        row = (first, count, packed, zlib.crc32(packed))
        self._connection.execute(f"INSERT INTO {self._name} VALUES (?, ?, ?, ?)", row)


def _paragraphs_of(request: bytes) -> tuple[list[bytes], bytes]:
    """Cut a request behind its empty lines, and its last line, with the seed, off the last paragraph."""
    head, end, rest = request.rpartition(_LINE_END)
    if not end:
        return [], rest
    *paragraphs, last = head.split(_EMPTY_LINE)
    return [*(paragraph + _EMPTY_LINE for paragraph in paragraphs), last + _LINE_END], rest


def _texts_of(paragraph: bytes) -> list[bytes]:
    """Cut a paragraph into texts that may stand in others too.

    Cut are long lines, and what is between them: so a problem, an instruction and each line of a solution are texts of
    their own, whichever prompt they stand in.
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

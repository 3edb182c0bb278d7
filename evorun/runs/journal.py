"""The journal: every effect of a run (a model call, a sandboxed program, ...) with its result, durable before use.

Callers ask for an effect under a key that says where in the run it belongs. A recorded result comes back to the byte,
so a killed run resumes by running again, and no method writes resume code. A thread groups the writes into
transactions; the event loop only waits for them.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from evorun.errors import ContradictionError, RunDirectoryError
from evorun.runs.history import History, describe_key
from evorun.runs.journal_file import ITEMS, SCHEMA, TABLES, Effect, Writer, digest_request, find_end, truncate
from evorun.runs.journal_reader import BlockReader, decode_result, protect, read_schema
from evorun.runs.paths import display

T = TypeVar("T")

log = logging.getLogger("evorun")

GROUP_BYTES = 4 << 20
"""Size from which a transaction takes no further effects."""


class _Write(NamedTuple):
    effect: Effect
    done: "asyncio.Future[int]"
    """The effect's number, once it is durable."""


class Journal:
    """A run's journal. `remember` and `put` belong to one event loop; the file belongs to one process."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal.

        Raises RunDirectoryError when the file cannot be used, JournalError when it is damaged.
        """
        self.path = path
        try:
            self._connection = _connect(path)
            _make_tables(self._connection, path)
        except sqlite3.Error as error:
            raise RunDirectoryError(f"cannot use the journal {path}: {_reason(error, path)}") from error
        self._reader = BlockReader(path, self._connection)
        self._reader.check()
        self._numbers: dict[str, int] = {}
        """Number of each recorded effect that callers may still ask for, by key."""
        for number, (key, _) in enumerate(self._reader.index()):
            self._numbers.setdefault(key, number)
        self._recorded = len(self._numbers)
        self._opened_with = self._reader.count()
        """Number of effects that earlier processes recorded."""
        self._ends = {name: find_end(self._connection, name) for name in TABLES}
        """Number of their items in each table."""
        # weak, so that a lock lives only while somebody waits for its key: a run has a key per call
        self._in_flight: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: list[_Write] = []
        """Effects recorded in this turn of the event loop: one group, since each transaction costs a flush to the
        disk."""
        self._waiting_bytes = 0
        self._queue: queue.SimpleQueue[tuple[list[_Write], int] | None] = queue.SimpleQueue()
        """Groups and their bytes."""
        self._writer = threading.Thread(target=self._write_groups, name="journal", daemon=True)
        self._writer.start()
        self._closed = False
        self.history: History | None = None
        """The history that the run shares with another, if any."""

    def __len__(self) -> int:
        return self._recorded

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    async def remember(
        self,
        key: str,
        inputs: bytes,
        compute: Callable[[], Awaitable[T]],
        kind: type[T],
        *,
        request: bytes | None = None,
        record: Callable[[Effect, T], Awaitable[None]] | None = None,
        repeat: bool = False,
        once: bool = False,
    ) -> T:
        """Return the recorded result of an effect, or execute and record it; an exception is not recorded.

        inputs: all that the result depends on, encoded. kind: the result's type. request: the part of `inputs` that the
        journal stores, where the whole is too much. record: a replacement for `put`, which may write the effect later.
        repeat: execute the effect although it is recorded; the recorded result is returned all the same. once: nobody
        asks for this effect again in this process, so its key is dropped from memory.

        A second caller for an effect in execution waits and then finds it recorded. Raises JournalError as `get`
        does.
        """
        digest = digest_request(inputs)
        recorded = self.get(key, digest, inputs)
        if recorded is None and self.history is not None:
            self.history.refuse_new(key)
        if recorded is None or repeat:
            # one lock per key: two candidates with the same program share one execution of it
            async with self._in_flight.setdefault(key, asyncio.Lock()):
                recorded = self.get(key, digest, inputs)
                if recorded is None or repeat:
                    started = time.perf_counter()
                    value = await compute()
                    result, seconds = msgspec.json.encode(value), time.perf_counter() - started
                    if recorded is None:
                        effect = Effect(key, digest, request or inputs, result, None, seconds)
                        await (self.put(effect) if record is None else record(effect, value))
                        recorded = result
                    elif result != recorded:
                        log.warning("%s, repeated, gives %r, not %r as recorded", key, result, recorded)
        if once:
            self._numbers.pop(key, None)
        return decode_result(recorded, kind, key, self.path)

    def recall(self, key: str, inputs: bytes, kind: type[T], *, once: bool = False) -> T | None:
        """Return the recorded result of an effect, or None; see `remember`. Raises JournalError as `get` does."""
        recorded = self.get(key, digest_request(inputs), inputs)
        if recorded is None:
            return None
        if once:
            del self._numbers[key]
        return decode_result(recorded, kind, key, self.path)

    def get(self, key: str, digest: bytes, inputs: bytes = b"") -> bytes | None:
        """Return the recorded result of `key`, or None.

        inputs: what the digest is of; needed in a fork, which may ask a shared question in another way. Raises
        ContradictionError when another request was recorded under the key: the run's inputs have changed.
        """
        number = self._numbers.get(key)
        if number is None:
            return None
        if self.history is not None:
            self.history.note_asked(key, number)
        if self._reader.key(number)[1] != digest:
            if self.history is None:
                raise ContradictionError(
                    f"{display(self.path)}: {describe_key(key)} was recorded for another request, so code, prompts or "
                    "data have changed since: put the former ones back and resume, or start a new run"
                )
            if not self.history.has_equal_question(key, self._reader.effect(number).request, inputs):
                raise self.history.contradiction(key)
        return self._reader.result(number)

    def count_used_calls(self) -> int:
        """Return the number of model calls of the shared history that the run has asked for."""
        asked = set() if self.history is None else self.history.asked
        return sum(self._reader.spent(number)[0] is not None for number in asked)

    def keys(self) -> Iterator[str]:
        """Yield the key of each effect, in the order of recording."""
        return (key for key, _ in self._reader.index())

    async def put(self, effect: Effect) -> None:
        """Record an effect; returns when it is durable. Raises RunDirectoryError when it cannot be written."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._hand_over)
        self._waiting.append(_Write(effect, done))
        self._waiting_bytes += len(effect.request) + len(effect.result)
        if self._waiting_bytes >= GROUP_BYTES:
            self._hand_over()
        self._numbers.setdefault(effect.key, await done)
        self._recorded += 1

    @property
    def has_grown(self) -> bool:
        """True once this process has recorded an effect."""
        return self._recorded > self._opened_with

    def set_aside_new(self, copy: Path) -> int:
        """Remove the effects that this process recorded, and return the number of model calls among them.

        copy: where the journal with them is kept, if there are such calls, since they may have been paid for. Only
        `close` may follow. Raises RunDirectoryError when a file cannot be written.
        """
        self._stop_writing()
        new = range(self._opened_with, self._reader.count())
        calls = sum(self._reader.spent(number)[0] is not None for number in new)
        try:
            if calls:
                self._connection.execute("VACUUM INTO ?", (str(copy),))
            truncate(self._connection, self._ends)
        except sqlite3.Error as error:
            raise RunDirectoryError(f"cannot write {self.path}: {_reason(error, self.path)}") from error
        return calls

    def close(self) -> None:
        """Write what is queued and close the file; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stop_writing()
        with contextlib.suppress(sqlite3.Error):  # merges the write-ahead log into the file, where the disk allows
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._reader.close()

    def _stop_writing(self) -> None:
        self._hand_over()
        self._queue.put(None)
        self._writer.join()

    def _hand_over(self) -> None:
        """Pass the waiting effects to the writer, if there are any."""
        if self._waiting:
            self._queue.put((self._waiting, self._waiting_bytes))
            self._waiting, self._waiting_bytes = [], 0

    def _write_groups(self) -> None:
        connection: sqlite3.Connection | None = None
        writer: Writer | None = None
        failure: Exception | None = None
        while (group := self._next_group()) is not None:
            first = 0
            try:
                if writer is None:
                    connection = _connect(self.path)
                    writer = Writer(connection)
                if failure is None:
                    first = writer.write([write.effect for write in group])
            except Exception as error:  # all waiting callers, and all later ones, must get the error, whatever it is
                failure = RunDirectoryError(f"cannot write {self.path}: {_reason(error, self.path)}")
            with contextlib.suppress(RuntimeError):  # the loop has ended, so nobody waits any more
                group[0].done.get_loop().call_soon_threadsafe(_settle, group, first, failure)
        if connection is not None:
            connection.close()

    def _next_group(self) -> list[_Write] | None:
        entry = self._queue.get()
        if entry is None:
            return None
        group, size = entry
        while size < GROUP_BYTES and not self._queue.empty():
            entry = self._queue.get()
            if entry is None:
                self._queue.put(None)  # the end comes after this group
                break
            group += entry[0]
            size += entry[1]
        return group


def create_journal(path: Path, effects: Iterable[Effect]) -> list[str]:
    """Create a journal out of effects of another one, and return their keys.

    Raises RunDirectoryError when the file exists or cannot be written.
    """
    keys: list[str] = []
    if path.exists():
        raise RunDirectoryError(f"expected no journal at {path}, found one; choose another folder")
    try:
        with contextlib.closing(_connect(path)) as connection:
            _make_tables(connection, path)
            writer, remaining = Writer(connection), iter(effects)
            while group := list(itertools.islice(remaining, ITEMS)):
                writer.write(group)
                keys += [effect.key for effect in group]
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise RunDirectoryError(f"cannot write {path}: {_reason(error, path)}") from error
    return keys


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: a commit survives a power cut; grouping pays for the extra flush
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    protect(connection)
    schema = read_schema(connection)
    if not schema:
        with connection:
            # by hand: sqlite3 opens no transaction for a CREATE, and a kill would leave some of the tables
            connection.execute("BEGIN")
            for statement in sorted(SCHEMA):
                connection.execute(statement)
    elif schema != SCHEMA:
        raise RunDirectoryError(f"cannot use the journal {path}: its tables are not evorun's")


def _reason(error: Exception, path: Path) -> str:
    """Return why SQLite failed; for a file that it cannot open, it does not say why itself."""
    if str(error) == "unable to open database file":
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as reason:
            return reason.strerror or str(reason)
    return str(error)


def _settle(group: list[_Write], first: int, failure: Exception | None) -> None:
    for number, write in enumerate(group, start=first):
        if write.done.done():  # cancelled: the run was interrupted while it waited
            continue
        if failure is None:
            write.done.set_result(number)
        else:
            write.done.set_exception(failure)

"""The journal: every effect of a run (a model call, a sandboxed program, ...) with its result, durable before use.

An effect is asked for under a key that says where in the run it belongs. What has been recorded comes back, to the
byte; so a killed run resumes by running again, and no method writes resume code. Writes are grouped into
transactions by a thread of their own; the event loop only waits for them.
"""

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from evorun.errors import JournalError, RunDirectoryError

T = TypeVar("T")

log = logging.getLogger("evorun")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    key TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    request BLOB NOT NULL,
    result BLOB NOT NULL,
    usage TEXT,
    seconds REAL NOT NULL
) WITHOUT ROWID
"""


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


class _Write(NamedTuple):
    effect: Effect
    done: "asyncio.Future[None]"


class Journal:
    """A run's journal. `remember` and `put` belong to one event loop; the file belongs to one process."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal. Raises RunDirectoryError when the file cannot be read or written."""
        self.path = path
        try:
            self._reader = _connect(path)
            self._reader.execute(_SCHEMA)
            self._reader.commit()
            self._recorded = {key for (key,) in self._reader.execute("SELECT key FROM effects")}
        except sqlite3.Error as error:
            raise RunDirectoryError(f"cannot use the journal {path}: {error}") from error
        # weak: a lock lives as long as somebody waits for its key, and a run has a key for each of its calls
        self._in_flight: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_groups, name="journal", daemon=True)
        self._writer.start()
        self._closed = False

    def __len__(self) -> int:
        return len(self._recorded)

    def __contains__(self, key: str) -> bool:
        return key in self._recorded

    async def remember(
        self,
        key: str,
        about: bytes,
        compute: Callable[[], Awaitable[T]],
        kind: type[T],
        *,
        request: bytes | None = None,
        record: Callable[[Effect, T], Awaitable[None]] | None = None,
        repeat: bool = False,
    ) -> T:
        """Return the recorded result of an effect, or carry it out and record it; what it raises is not recorded.

        about: all that the result depends on, encoded. kind: the result's type. request: what the journal keeps of
        `about`, when that is too much to keep. record: puts the effect into the journal in place of `put`, perhaps
        later. repeat: carry it out although it is recorded; the recorded result is returned even so.

        A second caller for an effect that is being carried out waits, and then finds it recorded. Raises JournalError
        as `get` does.
        """
        digest = digest_of(about)
        # one lock a key: two candidates with the same program share one execution of it
        async with self._in_flight.setdefault(key, asyncio.Lock()):
            recorded = self.get(key, digest)
            if recorded is None or repeat:
                started = time.perf_counter()
                made = await compute()
                result, seconds = msgspec.json.encode(made), time.perf_counter() - started
                if recorded is None:
                    effect = Effect(key, digest, request or about, result, None, seconds)
                    await (self.put(effect) if record is None else record(effect, made))
                    recorded = result
                elif result != recorded:
                    log.warning("%s, made again, gives %r, not %r as recorded", key, result, recorded)
        return msgspec.json.decode(recorded, type=kind)

    def get(self, key: str, digest: bytes) -> bytes | None:
        """Return the recorded result of `key`, or None.

        Raises JournalError when another request was recorded under the key: the run's inputs have changed.
        """
        if key not in self._recorded:
            return None
        recorded, result = self._reader.execute("SELECT digest, result FROM effects WHERE key = ?", (key,)).fetchone()
        if recorded != digest:
            raise JournalError(
                f"{self.path}: '{key}' was recorded for another request; prompts, data or code have changed since, "
                "so this directory cannot be continued: start a new run"
            )
        return bytes(result)

    async def put(self, effect: Effect) -> None:
        """Record an effect; returns when it is durable. Raises RunDirectoryError when it cannot be written."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(_Write(effect, done))
        await done
        self._recorded.add(effect.key)

    def close(self) -> None:
        """Write what is queued and close the file; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._writer.join()
        with contextlib.suppress(sqlite3.Error):  # one file, without a log beside it, where the disk allows
            self._reader.execute("PRAGMA journal_mode = DELETE")
        self._reader.close()

    def _write_groups(self) -> None:
        connection: sqlite3.Connection | None = None
        while (group := self._next_group()) is not None:
            failure = None
            try:
                connection = connection or _connect(self.path)
                with connection:  # one transaction: the flush to the disk costs far more than the rows
                    connection.executemany(
                        "INSERT OR IGNORE INTO effects VALUES (?, ?, ?, ?, ?, ?)", [write.effect for write in group]
                    )
            except Exception as error:  # whatever it is, those who wait must hear of it
                failure = RunDirectoryError(f"cannot write {self.path}: {error}")
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                group[0].done.get_loop().call_soon_threadsafe(_settle, group, failure)
        if connection is not None:
            connection.close()

    def _next_group(self) -> list[_Write] | None:
        first = self._queue.get()
        if first is None:
            return None
        group = [first]
        while not self._queue.empty():
            write = self._queue.get()
            if write is None:
                self._queue.put(None)  # the end comes after this group
                break
            group.append(write)
        return group


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: a commit survives a power cut; grouping pays for the extra flush
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _settle(group: list[_Write], failure: Exception | None) -> None:
    for write in group:
        if write.done.done():  # cancelled: the run was interrupted while it waited
            continue
        if failure is None:
            write.done.set_result(None)
        else:
            write.done.set_exception(failure)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Return a read-only connection to a finished or foreign journal. Raises RunDirectoryError when there is none."""
    if not path.is_file():
        raise RunDirectoryError(f"expected a run's journal, found no file {path}")
    # a journal on a read-only medium has no place for WAL's side files; then it is opened as immutable
    mode = "mode=ro" if os.access(path.parent, os.W_OK) else "immutable=1"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False)
        connection.execute("SELECT 1 FROM effects LIMIT 1")
    except sqlite3.Error as error:
        raise RunDirectoryError(f"{path} is not a journal of evorun: {error}") from error
    return connection

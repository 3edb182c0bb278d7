"""Program tests that runs share: a program that one run has tested is not run again by another."""

import contextlib
import platform
import sqlite3
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun import __version__
from evorun.errors import RunDirectoryError
from evorun.runs.journal_file import digest_request
from evorun.runs.program_tests import Results, Tester, TestRequests, hide_texts
from evorun.sandbox.base import Program, Suite
from evorun.sandbox.config import SandboxConfig

T = TypeVar("T")

FILE = "program_tests.sqlite"
_WAIT_SECONDS = 60.0
# A program that ends at a limit may pass on a machine with less load.
_REPEATABLE = ("accepted", "wrong_answer", "runtime_error")


class SharedTests:
    """A tester with a file of results, which the runs of all processes of a machine read and add to.

    A result is found by a digest of the program, its tests, and what it runs on. The file holds no program and no test.
    """

    def __init__(self, tester: Tester, folder: Path, sandbox: SandboxConfig) -> None:
        """Open or create the file in `folder`. Raises RunDirectoryError if it cannot be used."""
        self._tester = tester
        self._requests = TestRequests()
        self._file = folder / FILE
        self._platform = _describe_platform(sandbox)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Without transactions of its own: each statement is one.
            self._connection = sqlite3.connect(self._file, timeout=_WAIT_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, results BLOB NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the results of an earlier test, or the tester's. Raises SandboxError or RunDirectoryError."""
        _, request = self._requests.encode(program, suite, stop_at_failure)
        key = digest_request(self._platform + request)
        try:
            found = self._connection.execute("SELECT results FROM results WHERE key = ?", (key,)).fetchone()
            if found is not None:
                return msgspec.json.decode(found[0], type=Results)
            results = await self._tester.test(program, suite, stop_at_failure=stop_at_failure)
            if stop_at_failure:
                results = hide_texts(results)
            if all(result.verdict in _REPEATABLE for result in results):
                encoded = msgspec.json.encode(results)
                self._connection.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (key, encoded))
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise self._unusable(error) from None
        return results

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Do a grader's work: see `evorun.tasks.base.Tools.remember`."""
        return await self._tester.remember(about, compute, kind)

    async def close(self) -> None:
        """Close the file; idempotent."""
        self._connection.close()

    def _unusable(self, error: Exception) -> RunDirectoryError:
        return RunDirectoryError(
            f"sandbox.cache: cannot use {self._file}: {error}; remove the file or set another folder"
        )


def _describe_platform(sandbox: SandboxConfig) -> bytes:
    """Return what a result depends on beside program and tests, encoded."""
    versions = {}
    for name in (*sandbox.packages, *sandbox.distributions):
        versions[name] = ""
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    python = platform.python_version(), platform.machine()
    return msgspec.json.encode((__version__, python, sandbox.isolation, sandbox.preload, versions))

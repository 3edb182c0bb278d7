"""Program tests behind a journal: a program tested once, in this process or an earlier one, is not run again."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect, digest_request
from evorun.sandbox.base import CaseResult, Program, Suite

Results = tuple[CaseResult, ...]
T = TypeVar("T")


class Tester(Protocol):
    """Runs a program on the cases of a suite."""

    def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Awaitable[Results]:
        """Return a result for each case, in order: up to the first failing one, or for all."""
        ...

    def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> Awaitable[T]:
        """Return the result of a grader's work, new or recorded."""
        ...


class _TestRequest(msgspec.Struct, frozen=True):
    """A request to the sandbox, as a journal stores it: without the tests, which may be hidden."""

    program: Program
    suite: str
    """Digest of cases, limits and comparison."""
    stop_at_failure: bool


class TestRequests:
    """Encoder of requests to the sandbox; a task makes each suite once and uses it for every program."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Suite, str]] = {}

    def encode(self, program: Program, suite: Suite, stop_at_failure: bool) -> tuple[str, bytes]:
        """Return the effect's key, which depends only on the request, and the encoded request."""
        # by identity: a suite can hold megabytes of tests, and hashing them for every program would dominate
        entry = self._known.get(id(suite))
        if entry is None:
            entry = (suite, digest_request(msgspec.json.encode(suite)).hex())
            self._known[id(suite)] = entry  # holding the suite keeps its id from being reused
        request = msgspec.json.encode(_TestRequest(program, entry[1], stop_at_failure))
        return f"sandbox|{digest_request(request).hex()}", request


class JournaledTests:
    """A tester and other slow work of graders behind a journal.

    Candidates with the same program share its execution and its results. Hidden tests stop at the first failure; for
    such runs only verdicts and times are recorded and returned, since a program can print its input.
    """

    def __init__(self, tester: Tester, journal: Journal, *, replayed: bool = False) -> None:
        """replayed: another run's journal answers, so this run's journal records nothing."""
        self._tester = tester
        self._record = _discard if replayed else None
        self._journal = journal
        self._requests = TestRequests()

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the tester's results, recorded or new. Raises SandboxError, JournalError or RunDirectoryError."""

        async def run() -> Results:
            results = await self._tester.test(program, suite, stop_at_failure=stop_at_failure)
            return hide_texts(results) if stop_at_failure else results

        key, request = self._requests.encode(program, suite, stop_at_failure)
        return await self._journal.remember(key, request, run, Results, record=self._record)

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return the result of a grader's work, recorded or new: see `evorun.tasks.base.Tools.remember`."""
        key, request = encode_work(about)
        return await self._journal.remember(
            key, request, lambda: self._tester.remember(about, compute, kind), kind, record=self._record
        )


def hide_texts(results: Results) -> Results:
    """Return results without what programs wrote: on hidden tests they can print their inputs."""
    return tuple(msgspec.structs.replace(result, stdout="", stderr="", value=None) for result in results)


def encode_work(about: object) -> tuple[str, bytes]:
    """Return the key of a grader's work, which depends only on the work, and the encoded work."""
    request = msgspec.json.encode(about, order="deterministic")
    return f"grade|{digest_request(request).hex()}", request


async def _discard(effect: Effect, results: object) -> None:
    """Record nothing."""

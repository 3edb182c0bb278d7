"""Programs tested behind a journal: what has been run once, in this process or an earlier one, is not run again."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect, digest_of
from evorun.sandbox.base import CaseResult, Program, Suite

Results = tuple[CaseResult, ...]


class Tester(Protocol):
    """Runs a program on the cases of a suite."""

    def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Awaitable[Results]:
        """Return a result for each case, in order: up to the first failing one, or for all."""
        ...


class _TestRequest(msgspec.Struct, frozen=True):
    """A request to the sandbox, as a journal holds it; hidden tests stay out of it."""

    program: Program
    suite: str
    """Digest of cases, limits and comparison."""
    stop_at_failure: bool


class TestRequests:
    """Encoder of requests to the sandbox; a task makes each suite once and uses it for every program."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Suite, str]] = {}

    def encode(self, program: Program, suite: Suite, stop_at_failure: bool) -> tuple[str, bytes]:
        """Return the key of the effect and the request: the key follows from the content, not from the caller."""
        # by identity: a suite can hold megabytes of tests, and hashing them for every program would dominate
        known = self._known.get(id(suite))
        if known is None:
            known = (suite, digest_of(msgspec.json.encode(suite)).hex())
            self._known[id(suite)] = known  # the suite beside its digest keeps the id its own
        about = msgspec.json.encode(_TestRequest(program, known[1], stop_at_failure))
        return f"sandbox|{digest_of(about).hex()}", about


class JournaledTests:
    """A tester behind a journal.

    Candidates with the same program share its execution and its results. Of tests that end at the first failure, which
    is how hidden ones are run, verdicts and times alone are kept and returned: a program can print its input.
    """

    def __init__(self, tester: Tester, journal: Journal, *, replayed: bool = False) -> None:
        """replayed: another run's journal answers, so that this one's keeps nothing."""
        self._tester = tester
        self._record = _keep_nothing if replayed else None
        self._journal = journal
        self._requests = TestRequests()

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the tester's results, recorded or new. Raises SandboxError, JournalError or RunDirectoryError."""

        async def run() -> Results:
            results = await self._tester.test(program, suite, stop_at_failure=stop_at_failure)
            if not stop_at_failure:
                return results
            return tuple(msgspec.structs.replace(one, stdout="", stderr="", value=None) for one in results)

        key, about = self._requests.encode(program, suite, stop_at_failure)
        return await self._journal.remember(key, about, run, Results, record=self._record)


async def _keep_nothing(effect: Effect, results: Results) -> None:
    """Record an effect nowhere."""

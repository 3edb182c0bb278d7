"""Programs tested behind a journal: what has been run once, in this process or an earlier one, is not run again."""

import asyncio
import time
from collections.abc import Awaitable
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec

from evorun.errors import JournalError
from evorun.runs.journal import Effect, Journal, open_read_only
from evorun.sandbox.base import CaseResult, Program, Suite

Results = tuple[CaseResult, ...]

_DECODER = msgspec.json.Decoder(Results)


class Tester(Protocol):
    """Runs a program on the cases of a suite."""

    def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Awaitable[Results]:
        """Return a result for each case, in order: up to the first failing one, or for all."""
        ...


class _TestRequest(msgspec.Struct, frozen=True):
    """What is asked of the sandbox, as a journal holds it; hidden tests stay out of it."""

    program: Program
    suite: str
    """Digest of cases, limits and comparison."""
    stop_at_failure: bool


class _Digests:
    """The digests of suites; a task makes each suite once and uses it for every program."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Suite, str]] = {}

    def request(self, program: Program, suite: Suite, stop_at_failure: bool) -> tuple[bytes, bytes]:
        """Return the encoded request and its digest."""
        body = msgspec.json.encode(_TestRequest(program, self._of(suite), stop_at_failure))
        return body, blake2b(body, digest_size=16).digest()

    def _of(self, suite: Suite) -> str:
        known = self._known.get(id(suite))
        if known is None:
            known = (suite, blake2b(msgspec.json.encode(suite), digest_size=16).hexdigest())
            self._known[id(suite)] = known  # the suite beside its digest keeps the id its own
        return known[1]


class JournaledTests:
    """A tester behind a journal.

    An effect is known by its content (program, suite, limits), not by who asked: candidates with the same program
    share it. Of tests that end at the first failure, which is how hidden ones are run, verdicts and times alone are
    kept and returned: a program can print its input.
    """

    def __init__(self, tester: Tester, journal: Journal) -> None:
        self._tester = tester
        self._journal = journal
        self._digests = _Digests()
        self._running: dict[str, asyncio.Task[Results]] = {}

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return what the tester said or says. Raises SandboxError, JournalError or RunDirectoryError."""
        body, digest = self._digests.request(program, suite, stop_at_failure)
        key = f"sandbox|{digest.hex()}"
        recorded = self._journal.get(key, digest)
        if recorded is not None:
            return _DECODER.decode(recorded)
        if key not in self._running:
            work = asyncio.create_task(self._carry_out(key, digest, body, program, suite, stop_at_failure))
            self._running[key] = work
            work.add_done_callback(lambda _: self._running.pop(key))
        # shielded: whoever else waits for the same program must not lose it when one of them is cancelled
        return await asyncio.shield(self._running[key])

    async def _carry_out(
        self, key: str, digest: bytes, body: bytes, program: Program, suite: Suite, stop_at_failure: bool
    ) -> Results:
        started = time.perf_counter()
        results = await self._tester.test(program, suite, stop_at_failure=stop_at_failure)
        if stop_at_failure:
            results = tuple(map(_verdict_alone, results))
        seconds = time.perf_counter() - started
        await self._journal.put(Effect(key, digest, body, msgspec.json.encode(results), None, seconds))
        return results

    async def close(self) -> None:
        """Stop what is still running: nobody waits for it any more."""
        running = list(self._running.values())
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _verdict_alone(result: CaseResult) -> CaseResult:
    return msgspec.structs.replace(result, stdout="", stderr="", value=None)


class ReplayedTests:
    """Says what a recorded run's sandbox said, and refuses programs that it was never given."""

    def __init__(self, journal: Path) -> None:
        """Open the recording. Raises RunDirectoryError when it cannot be read."""
        self._journal = journal
        self._connection = open_read_only(journal)
        self._digests = _Digests()

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the recorded results. Raises JournalError when there are none."""
        _, digest = self._digests.request(program, suite, stop_at_failure)
        row = self._connection.execute(
            "SELECT result FROM effects WHERE key = ?", (f"sandbox|{digest.hex()}",)
        ).fetchone()
        if row is None:
            raise JournalError(
                f"{self._journal} holds no run of a program that this run wants to test: it was recorded with another "
                "configuration, other problems or other limits"
            )
        return _DECODER.decode(row[0])

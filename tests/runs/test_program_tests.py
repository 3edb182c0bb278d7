"""Programs tested behind a journal: nothing runs twice, and nobody's wait harms another's."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evorun.errors import JournalError, RunDirectoryError, SandboxError
from evorun.runner.work import Engines, open_effects
from evorun.runs.directory import RunDirectory
from evorun.runs.journal import Journal
from evorun.runs.journal_reader import read_journal
from evorun.runs.program_tests import JournaledTests
from evorun.runs.replay import RecordedRun
from evorun.runs.shared_tests import SharedTests
from evorun.sandbox.base import Case, CaseResult, Limits, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox

SECRET = "the hidden expected output"
SUITE = Suite((Case("1", SECRET), Case("2", SECRET + " too")), "lines", Limits())
ONE, TWO = Program("print(1)"), Program("print(2)")


class Slow:
    """A tester that answers when it is let, and counts what it was given."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.given: list[tuple[Program, Suite, bool]] = []
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.cancelled = 0
        self.failure = failure

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.given.append((program, suite, stop_at_failure))
        self.arrivals.put_nowait(None)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return results(program.source)


class Echo:
    """Says what a program would that prints all that it reads: on both streams, and as its entry's result."""

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        return tuple(
            CaseResult(verdict="wrong_answer", stdout=c.stdin, stderr=c.stdin, value=c.stdin, cpu_seconds=0.25)
            for c in suite.cases
        )


def results(text: str) -> tuple[CaseResult, ...]:
    return (
        CaseResult(verdict="accepted", stdout=text, stderr="", value=None, cpu_seconds=0.01),
        CaseResult(verdict="wrong_answer", stdout="", stderr="é\x00", value="[1]", cpu_seconds=0.5),
    )


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


def rows(path: Path) -> list[tuple[Any, ...]]:
    return sorted((one.key, one.request, one.result) for one in read_journal(path))


async def started(tester: Slow, count: int) -> None:
    async with asyncio.timeout(5):
        for _ in range(count):
            await tester.arrivals.get()


async def test_a_program_asked_for_by_many_at_once_runs_once(journal: Journal) -> None:
    tester = Slow()
    tests = JournaledTests(tester, journal)
    waiting = [
        asyncio.create_task(tests.test(Program(f"print({1 + i % 2})"), SUITE, stop_at_failure=False)) for i in range(20)
    ]
    await started(tester, 2)
    tester.go_on.set()
    said = await asyncio.gather(*waiting)
    assert len(tester.given) == 2
    assert all(one == results(f"print({1 + i % 2})") for i, one in enumerate(said))
    # and not again, now that it is recorded
    assert await tests.test(ONE, SUITE, stop_at_failure=False) == results("print(1)")
    assert len(tester.given) == len(journal) == 2


@pytest.mark.parametrize("doomed", [0, 1, 2])
async def test_one_waiter_that_is_cancelled_harms_no_other(journal: Journal, doomed: int) -> None:
    tester = Slow()
    tests = JournaledTests(tester, journal)
    waiting = [asyncio.create_task(tests.test(ONE, SUITE, stop_at_failure=False)) for _ in range(3)]
    await started(tester, 1)
    waiting[doomed].cancel()
    await asyncio.sleep(0)
    tester.go_on.set()
    said = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(said[doomed], asyncio.CancelledError)
    assert [one for i, one in enumerate(said) if i != doomed] == [results("print(1)")] * 2
    assert len(tester.given) == (2 if doomed == 0 else 1)  # the first waiter's execution ends with it


async def test_what_differs_in_anything_is_run_by_itself(journal: Journal) -> None:
    tester = Slow()
    tester.go_on.set()
    tests = JournaledTests(tester, journal)
    others = [
        (ONE, SUITE, False),
        (ONE, SUITE, True),
        (TWO, SUITE, False),
        (Program("print(1)", "f"), SUITE, False),
        (ONE, Suite(SUITE.cases[:1], "lines", SUITE.limits), False),
        (ONE, Suite(SUITE.cases, "json", SUITE.limits), False),
        (ONE, Suite(SUITE.cases, "lines", Limits(cpu_seconds=1.0)), False),
        (ONE, Suite((Case("1", "x"), SUITE.cases[1]), "lines", SUITE.limits), False),
    ]
    for program, suite, stop in others:
        await tests.test(program, suite, stop_at_failure=stop)
    assert tester.given == others
    # an equal suite is the same suite, whoever made it
    await tests.test(ONE, Suite(tuple(SUITE.cases), "lines", Limits()), stop_at_failure=False)
    assert len(tester.given) == len(others)


async def test_suites_that_come_and_go_are_not_taken_for_one_another(journal: Journal) -> None:
    """An object's address may be used again by the next one, as long as nobody keeps the first."""

    class Forgetful:
        async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
            return results(suite.cases[0].stdin)

    tests = JournaledTests(Forgetful(), journal)
    for number in range(50):
        said = await tests.test(ONE, Suite((Case(str(number), ""),), "lines", Limits()), stop_at_failure=False)
        assert said == results(str(number))
    assert len(journal) == 50


async def test_a_resumed_run_runs_no_program_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = Journal(path)
    tester = Slow()
    tester.go_on.set()
    await JournaledTests(tester, first).test(ONE, SUITE, stop_at_failure=False)
    first.close()
    before = rows(path)
    again = Journal(path)
    other = Slow()
    other.go_on.set()
    tests = JournaledTests(other, again)
    assert await tests.test(ONE, SUITE, stop_at_failure=False) == results("print(1)")
    assert other.given == []
    again.close()
    assert rows(path) == before


async def test_the_journal_holds_no_hidden_test(journal: Journal) -> None:
    hidden = Suite((Case("a hidden input", SECRET),), "lines", Limits())
    tests = JournaledTests(Echo(), journal)
    said = await tests.test(ONE, hidden, stop_at_failure=True)
    # what is said now is what is said when the run is resumed
    assert said == await JournaledTests(Echo(), journal).test(ONE, hidden, stop_at_failure=True)
    assert said == (CaseResult(verdict="wrong_answer", stdout="", stderr="", value=None, cpu_seconds=0.25),)
    ((key, request, _),) = rows(journal.path)
    assert key.startswith("sandbox|")
    assert set(json.loads(request)) == {"program", "suite", "stop_at_failure"}
    assert json.loads(request)["program"]["source"] == "print(1)"
    written = b"".join(path.read_bytes() for path in journal.path.parent.iterdir())
    assert SECRET.encode() not in written
    assert b"a hidden input" not in written


async def test_what_a_program_prints_on_public_tests_is_kept(journal: Journal) -> None:
    public = Suite((Case("a public input", "1"), Case("2", "3")), "lines", Limits())
    said = await JournaledTests(Echo(), journal).test(ONE, public, stop_at_failure=False)
    assert [(one.stdout, one.stderr, one.value) for one in said] == [("a public input",) * 3, ("2",) * 3]
    assert await RecordedRun(journal.path.parent).test(ONE, public, stop_at_failure=False) == said


async def test_a_sandbox_that_breaks_down_is_told_to_all_and_tried_again(journal: Journal) -> None:
    tester = Slow(SandboxError("no more processes"))
    tester.go_on.set()
    tests = JournaledTests(tester, journal)
    said = await asyncio.gather(
        *(tests.test(ONE, SUITE, stop_at_failure=False) for _ in range(3)), return_exceptions=True
    )
    assert [str(error) for error in said] == ["no more processes"] * 3
    assert len(journal) == 0
    tester.failure = None
    assert await tests.test(ONE, SUITE, stop_at_failure=False) == results("print(1)")


async def test_what_nobody_waits_for_is_stopped(journal: Journal) -> None:
    tester = Slow()
    tests = JournaledTests(tester, journal)
    waiting = [asyncio.create_task(tests.test(p, SUITE, stop_at_failure=True)) for p in (ONE, TWO)]
    await started(tester, 2)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert tester.cancelled == 2
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(journal) == 0


async def test_replay_says_what_was_said_and_refuses_the_rest(journal: Journal) -> None:
    tester = Slow()
    tester.go_on.set()
    await JournaledTests(tester, journal).test(ONE, SUITE, stop_at_failure=False)
    replayed = RecordedRun(journal.path.parent)
    assert await replayed.test(ONE, SUITE, stop_at_failure=False) == results("print(1)")
    unknown = [
        (TWO, SUITE, False),
        (ONE, SUITE, True),
        (ONE, Suite(SUITE.cases, "lines", Limits(memory_mib=64)), False),
        (ONE, Suite(SUITE.cases[:1], "lines", Limits()), False),
    ]
    for program, suite, stop in unknown:
        with pytest.raises(JournalError, match=r"holds no test of a program that this run tests: [^\n]*$"):
            await replayed.test(program, suite, stop_at_failure=stop)
    assert len(tester.given) == 1


def test_replay_needs_a_recording(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="expected a run's journal, found no file"):
        RecordedRun(tmp_path)


class Numbered:
    """A tester whose results say how often it was asked."""

    def __init__(self, verdict: str = "accepted") -> None:
        self.asked, self.verdict = 0, verdict

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.asked += 1
        text = f"{suite.cases[0].stdin} {self.asked}"
        return (CaseResult(verdict=self.verdict, stdout=text, stderr="", value=None, cpu_seconds=0.25),)


async def test_runs_that_share_results_test_a_program_once(tmp_path: Path) -> None:
    first, second = Numbered(), Numbered()
    shared = SharedTests(first, tmp_path / "made", SandboxConfig())
    said = await shared.test(ONE, SUITE, stop_at_failure=False)
    hidden = await shared.test(ONE, SUITE, stop_at_failure=True)
    await shared.close()
    again = SharedTests(second, tmp_path / "made", SandboxConfig())
    assert [await again.test(ONE, SUITE, stop_at_failure=stop) for stop in (False, True)] == [said, hidden]
    assert (first.asked, second.asked) == (2, 0)
    assert (said[0].stdout, hidden[0].stdout) == ("1 1", "")  # a program can print a hidden test's input
    await again.test(TWO, SUITE, stop_at_failure=False)
    assert second.asked == 1
    await again.close()
    # what else a result depends on: here the packages that programs may import
    other = SharedTests(second, tmp_path / "made", SandboxConfig(packages=[]))
    await other.test(ONE, SUITE, stop_at_failure=False)
    assert second.asked == 2
    await other.close()


async def test_a_program_stopped_at_a_limit_is_tested_again(tmp_path: Path) -> None:
    late = Numbered("time_limit")
    shared = SharedTests(late, tmp_path, SandboxConfig())
    for _ in range(2):
        await shared.test(ONE, SUITE, stop_at_failure=True)
    assert late.asked == 2
    await shared.close()


async def test_a_file_of_shared_results_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "program_tests.sqlite").write_text("something else, which is longer than a header of SQLite's" * 9)
    with pytest.raises(RunDirectoryError, match=r"sandbox.cache: cannot use .*program_tests.sqlite: .*not a database"):
        SharedTests(Numbered(), tmp_path, SandboxConfig())


async def test_the_results_of_a_run_are_shared_by_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Numbered()
    monkeypatch.setattr(LazySandbox, "test", lambda _, *given, **keys: asked.test(*given, **keys))
    for name in ("one", "two"):
        config = SandboxConfig(cache=str(tmp_path / "cache"))
        directory = RunDirectory(tmp_path / name)
        async with open_effects(directory, config, [], lambda _: Engines({})) as effects:
            await effects.tests.test(ONE, SUITE, stop_at_failure=False)
        assert len(directory.journal) == 1
        directory.close()
    assert asked.asked == 1

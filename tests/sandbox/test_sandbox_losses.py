"""Zygotes that are killed while they run a program: no result of the program's, unless it alone meets with it."""

import asyncio
import contextlib
from pathlib import Path

import psutil
import pytest

from evorun.errors import SandboxError
from evorun.runs.journal import Journal
from evorun.runs.program_tests import JournaledTests
from evorun.sandbox import Case, Execution, Limits, Program, Sandbox, SandboxConfig, Suite
from evorun.sandbox.lazy import LazySandbox
from evorun.sandbox.zygotes import Zygote
from means import interpreter_for_other_users


class Killer:
    """Kills a zygote as soon as it is to run one of some programs (None: any), `times` times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...] | None = None, times: int = 100
    ) -> None:
        self.times = times
        run = Zygote.run

        async def killed(zygote: Zygote, program: Program, stdin: str, limits: Limits) -> Execution:
            if self.times and (sources is None or program.source in sources):
                self.times -= 1
                top = psutil.Process(zygote._process.pid)
                for process in [*top.children(recursive=True), top]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            return await run(zygote, program, stdin, limits)

        monkeypatch.setattr(Zygote, "run", killed)


@pytest.mark.nightly
async def test_a_program_whose_zygotes_are_killed_for_a_while_gets_its_own_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox = await Sandbox.open(SandboxConfig(slots=1))
    killer = Killer(monkeypatch, ("print(1)",), times=2)
    assert (await sandbox.run(Program("print(1)"), "", Limits())).stdout == "1\n"
    assert killer.times == 0
    await sandbox.close()


async def test_the_signal_that_ends_a_schedulers_job_is_no_result() -> None:
    """SIGTERM reaches all processes of a job, and programs in no namespace of their own among them."""
    with interpreter_for_other_users():
        sandbox = await Sandbox.open(SandboxConfig(slots=1, isolation="rlimits"))
        execution = await sandbox.run(Program("import os\nos.kill(os.getpid(), 15)"), "", Limits())
        await sandbox.close()
    assert (execution.end, execution.signal) == ("runtime_error", None)
    assert "ended from outside, three times" in execution.stderr


async def test_where_every_zygote_is_killed_nothing_is_recorded_and_a_later_run_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite((Case("", "1"),), "lines", Limits())
    journal, sandbox = Journal(tmp_path / "journal.sqlite"), LazySandbox(SandboxConfig(slots=2))
    tests = JournaledTests(sandbox, journal)
    (right,) = await tests.test(Program("print(1)"), suite, stop_at_failure=True)
    assert right.verdict == "accepted"
    with monkeypatch.context() as patch:
        Killer(patch)
        with pytest.raises(SandboxError, match="not even one that does nothing"):
            await tests.test(Program("print(1) "), suite, stop_at_failure=True)
        assert len(journal) == 1
    (later,) = await tests.test(Program("print(1) "), suite, stop_at_failure=True)
    assert later.verdict == "accepted"
    await sandbox.close()
    journal.close()


async def test_a_program_that_always_loses_its_zygote_gets_its_verdict_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox = await Sandbox.open(SandboxConfig(slots=2))
    Killer(monkeypatch, ("evil", "worse"))
    sources = ["print(1)", "evil", "print(2)", "worse"]
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(sandbox.run(Program(source), "", Limits()) for source in sources))
    assert [(e.end, e.stdout) for e in found if e.stdout] == [("completed", f"{n}\n") for n in (1, 2)]
    assert [e.end for e in found if not e.stdout] == ["runtime_error"] * 2
    assert all("ended from outside" in e.stderr for e in found if not e.stdout)
    await sandbox.close()

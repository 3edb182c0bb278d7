"""The work of a run or of a study: its effects behind a journal, and an orderly end whatever stops it."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorun.errors import EngineError, EvorunError, RunDirectoryError, SandboxError, TrainingError, as_machine_error
from evorun.models.base import LanguageModel, Trained
from evorun.runner.gold import MethodTools
from evorun.runner.process import logging_to, stop_on_signals
from evorun.runs.directory import RunDirectory, current_time
from evorun.runs.effects import JournaledModel, Traffic, journal_engines
from evorun.runs.manifest import Status
from evorun.runs.program_tests import JournaledTests
from evorun.runs.records import write_json
from evorun.runs.replay import RecordedRun
from evorun.runs.shared_tests import SharedTests
from evorun.runs.signals import as_interrupt, restore_signal_handlers
from evorun.runs.studies import StudyManifest
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.training.base import TrainedPolicy

log = logging.getLogger("evorun")

NEW_OBJECTS = 100_000
"""New objects after which Python looks for reference cycles (ours). Its default of 700 costs a sixth of a run's CPU
time. Tens of thousands of tasks and candidates are in flight, and none is in a cycle."""


OWN_SIGNAL_S = 0.2
"""Seconds after an error within which a signal to this process counts as its cause (ours).

A scheduler signals the processes of a job one by one, so a trainer's end may be noticed before the run's own signal.
"""


class Outcome(NamedTuple):
    """The end of a run."""

    status: Status
    error: BaseException | None = None
    already_complete: bool = False
    """True for a run that was complete before, and whose files are unchanged."""

    @property
    def reason(self) -> str | None:
        """The error as a manifest states it; None without one."""
        if self.error is None:
            return None
        ours = isinstance(self.error, EvorunError | KeyboardInterrupt)
        return str(self.error) if ours else f"{type(self.error).__name__}: {self.error}"

    def raise_error(self) -> None:
        """Raise the error of a failed run, KeyboardInterrupt for an interrupted one."""
        if self.status == "interrupted":
            raise KeyboardInterrupt(self.reason)
        if self.error is not None:
            raise self.error


class Engines(NamedTuple):
    """The engines of a run."""

    by_role: Mapping[str, LanguageModel | Trained]
    """By model role; roles may share one."""
    policy: TrainedPolicy | None = None
    """The policy that the run trains."""
    replayed: Collection[str] = ()
    """The roles that another run's journal answers; the own one then keeps nothing of them."""


class Effects(NamedTuple):
    """All that a run asks of the outside, behind its journal."""

    models: dict[str, JournaledModel]
    """By model role."""
    tests: JournaledTests
    policy: TrainedPolicy | None
    traffic: Traffic

    async def finish(self) -> None:
        """Record what was kept back so far: all has been asked."""
        for model in self.models.values():
            await model.finish()


@contextlib.asynccontextmanager
async def open_effects(
    directory: RunDirectory,
    sandbox: SandboxConfig,
    private_files: Sequence[Path],
    open_engines: Callable[[MethodTools], Engines],
    recorded: Path | None = None,
) -> AsyncIterator[Effects]:
    """Open the effects of a run and close them at its end.

    private_files: hidden from programs, as the directory is. recorded: the run whose journal has the results of
    programs, in place of the sandbox.
    """
    async with contextlib.AsyncExitStack() as stack:
        tester: LazySandbox | RecordedRun | SharedTests
        if recorded is not None:
            tester = await asyncio.to_thread(RecordedRun, recorded)
        else:
            shared = [] if sandbox.cache is None else [Path(sandbox.cache)]
            tester = LazySandbox(sandbox, [directory.path, *private_files, *shared])
        stack.push_async_callback(tester.close)
        if recorded is None and sandbox.cache is not None:
            tester = SharedTests(tester, Path(sandbox.cache), sandbox)
            stack.push_async_callback(tester.close)
        tests = JournaledTests(tester, directory.journal, replayed=recorded is not None)
        engines = open_engines(MethodTools(tests))
        for engine in {id(engine): engine for engine in engines.by_role.values()}.values():
            stack.push_async_callback(engine.close)
        if engines.policy is not None:
            stack.push_async_callback(engines.policy.close)
        traffic = Traffic(stopwatch=None if engines.policy is None else engines.policy.stopwatch)
        models = journal_engines(engines.by_role, directory.journal, traffic, engines.replayed)
        yield Effects(models, tests, engines.policy, traffic)


def carry_out(begin: Callable[[], Coroutine[Any, Any, None]]) -> Outcome:
    """Do the work of a run that has begun and return how it ended, whatever stopped it.

    begin: prepares the work and returns what is left of it, for the event loop.
    """
    try:
        try:
            work = begin()
            with restore_signal_handlers():
                asyncio.run(_stoppable(work))
        except (KeyboardInterrupt, asyncio.CancelledError) as stop:
            reason = str(stop) or "stopped"
            log.info("interrupted: %s", reason)
            return Outcome("interrupted", KeyboardInterrupt(reason))
        except Exception as error:
            log.exception("failed")
            if (interrupt := as_interrupt(error)) is not None:
                return Outcome("interrupted", interrupt)
            return Outcome("failed", as_machine_error(error) or error)
    except KeyboardInterrupt as stop:  # while the end was logged
        return Outcome("interrupted", KeyboardInterrupt(str(stop) or "stopped"))
    return Outcome("completed")


async def _stoppable(work: Coroutine[Any, Any, None]) -> None:
    gc.set_threshold(NEW_OBJECTS)
    stop_on_signals()
    try:
        await work
    except (EngineError, SandboxError, TrainingError):
        await asyncio.sleep(OWN_SIGNAL_S)
        raise


def carry_out_study(
    directory: RunDirectory, file: str, manifest: StudyManifest, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Carry out the work of a study, whose manifest lies in `file` from its beginning on.

    Raises KeyboardInterrupt when the study is stopped, and the errors that stop a run.
    """
    directory.journal  # noqa: B018 - opened before there is a manifest, so that every manifest has a journal
    write_json(directory.path / file, manifest)
    with logging_to(directory.path / "evorun.log"):
        outcome = carry_out(work)
    manifest.status, manifest.ended, manifest.error = outcome.status, current_time(), outcome.reason
    directory.seal(manifest)
    try:
        write_json(directory.path / file, manifest)
    except RunDirectoryError:
        if outcome.status != "failed":  # otherwise the study's own error says more
            raise
    outcome.raise_error()

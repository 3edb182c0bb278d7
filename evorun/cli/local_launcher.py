"""`hydra/launcher=local`: the jobs of a sweep side by side on this machine, each in a process of its own.

joblib's launcher runs jobs in a pool, which one killed worker ends for all. submitit's local executor starts all jobs
at once, shows each the same GPUs, and hides in files what they print. Processes of our own need neither package.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from evorun.cli import invocation, output
from evorun.cli.given_job import GivenJob
from evorun.cli.job_command import compose_job
from evorun.cli.naming import remove_unused_run_dir
from evorun.cli.shared_models import LOG, JobGroup, gpus_in, gpus_of, group_jobs, serving
from evorun.cli.status_table import status_line
from evorun.errors import ConfigError, EvorunError, make_error
from evorun.models.devices import VISIBLE, find_gpus, visible_gpus
from evorun.models.sharing import SharedModels
from evorun.runs.job_states import look_at
from evorun.runs.paths import display
from evorun.runs.signals import STOP_SIGNALS, WARNING_SIGNALS
from evorun.runs.terminal import Terminal

if TYPE_CHECKING:
    from evorun.runner.shared_plans import SharedEngines

TARGET = "hydra_plugins.evorun.LocalLauncher"
"""The name in `conf/hydra/launcher/local.yaml`: Hydra takes launchers from packages `hydra_plugins` alone."""

_log = logging.getLogger(__name__)

_ERROR = re.compile(r"error (\w+): (.*)")
"""The last line of a job that fails: the class of its error, and the message."""
_POLL_S = 0.1
_REFRESH_S = 1.0
_STATUSES = {
    0: "completed",
    130: "interrupted",
    # by a signal that came before the job could handle it
    **dict.fromkeys((-number for number in (*STOP_SIGNALS, *WARNING_SIGNALS)), "interrupted"),
}


class _Running(NamedTuple):
    """A job's process."""

    process: subprocess.Popen[bytes]
    name: str
    folder: Path
    said: IO[bytes]
    """Its standard error."""


class LocalLauncher(Launcher):
    """Hydra's launcher of jobs in processes of this machine; `jobs` of them at once.

    share_models: jobs that need the same models ask one process, which loads them once.
    """

    def __init__(self, jobs: int | None = None, share_models: bool = False) -> None:
        if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
            raise ConfigError(
                f"hydra.launcher.jobs: expected a number >= 1, or null for one per GPU or core, got {jobs}"
            )
        if not isinstance(share_models, bool):
            raise ConfigError(f"hydra.launcher.share_models: expected true or false, got {share_models}")
        self.jobs, self.share_models = jobs, share_models
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self._console = Terminal(stderr=True)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Carry out the jobs and return when all have ended; an interrupt stops them, each in order."""
        jobs = {number: list(overrides) for number, overrides in enumerate(job_overrides, initial_job_idx)}
        statuses: list[str] = []
        try:
            for group in self._group(jobs):
                self._carry_out(group, jobs, statuses)
        finally:
            invocation.current.statuses += statuses
        if "interrupted" in statuses:  # by a signal to the job alone
            raise KeyboardInterrupt
        return [returned(status) for status in statuses]

    def _group(self, jobs: Mapping[int, list[str]]) -> list[JobGroup]:
        """Return the jobs in groups that share models; all together where none are to be shared."""
        if not self.share_models:
            return [JobGroup(list(jobs), ())]
        composed: dict[int, GivenJob | None] = dict.fromkeys(jobs)
        for number, overrides in jobs.items():
            with contextlib.suppress(EvorunError):  # said when the job is to start
                composed[number] = self._compose(overrides, number)
        groups = group_jobs(composed)
        if not any(group.models for group in groups):
            _log.warning("hydra.launcher.share_models: has no effect, no two jobs load the same models")
        return groups

    def _carry_out(self, group: JobGroup, jobs: Mapping[int, list[str]], statuses: list[str]) -> None:
        """Carry out a group of the sweep's jobs, and add how they ended.

        Raises EngineError when a process that serves models to them has ended, ConfigError where these do not fit.
        """
        from evorun.runner.gpu_plans import make_gpu_table, record
        from evorun.runner.shared_plans import SharedEngines

        assert invocation.current.sweep is not None  # noqa: S101 - the sweeper has begun it
        log = invocation.current.sweep.folder / LOG
        engines = SharedEngines(group.configs, find_gpus(), download=True)
        shares, places = divide_machine(self.jobs, group, engines)
        left = group.jobs[::-1]
        running: dict[int, _Running] = {}  # by share
        with contextlib.ExitStack() as stack:
            servers = stack.enter_context(serving(group.models, engines, places, len(shares), log)) if places else []
            if servers:
                names = " and ".join(dict.fromkeys(served.model.name for served in group.models))
                on = "one process" if len(servers) == 1 else f"{len(servers)} processes"
                self._console.print(f"{len(group.jobs)} jobs share {names} in {on}, see {display(log)}", soft_wrap=True)
                if (plan := engines.plan(gpus_in(places[0]))) is not None:
                    of = "" if len(servers) == 1 else "the first process"
                    self._console.print_table(make_gpu_table(record(plan), plan.gpus, of).to_rich())
            try:
                with self._display(running, statuses, len(jobs)) as refresh:
                    while left or running:
                        for share in range(len(shares)):
                            if left and share not in running:
                                number = left.pop()
                                shared = servers[share % len(servers)].shared if servers else None
                                job = self._start(jobs[number], number, shares[share], shared)
                                if job is None:
                                    statuses.append("failed")
                                else:
                                    running[share] = job
                        for share, job in list(running.items()):
                            if job.process.poll() is not None:
                                self._end(running.pop(share), statuses)
                        for server in servers:
                            server.check()
                        refresh()
                        time.sleep(_POLL_S)
            except BaseException:
                self._stop(list(running.values()), statuses)
                raise

    def _compose(self, overrides: list[str], number: int) -> GivenJob:
        """Return a job for its own process. Raises EvorunError."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        begun = invocation.current.sweep
        assert begun is not None  # noqa: S101 - the sweeper has begun it
        folder = begun.folder / begun.jobs[number].folder
        return compose_job(self.hydra_context, self.config, overrides, number, str(folder))

    def _start(
        self, overrides: list[str], number: int, share: dict[str, str], shared: SharedModels | None
    ) -> _Running | None:
        """Start a job; return None where it cannot be composed, which is said."""
        begun = invocation.current.sweep
        assert begun is not None  # noqa: S101 - the sweeper has begun it
        job = begun.jobs[number]
        name, folder = begun.names[job.folder], begun.folder / job.folder
        try:
            given = self._compose(overrides, number)
        except EvorunError as error:
            self._fail(name, job.folder, error)
            return None
        given.shared = shared
        # empty until the job's process has loaded: `evorun status` then calls it starting
        folder.mkdir(parents=True, exist_ok=True)
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the job has ended
        with tempfile.TemporaryFile() as file:
            file.write(msgspec.json.encode(given))
            file.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-m", "evorun.cli.local_job", str(os.getpid()), display(folder)],
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **share},
                pass_fds=[] if shared is None else [shared.held],
                start_new_session=True,  # Ctrl-C reaches this process alone, which stops its jobs
            )
        return _Running(process, name, folder, said)

    def _end(self, job: _Running, statuses: list[str]) -> None:
        """Print what a job has said that no other has; add its status."""
        code = job.process.wait()
        remove_unused_run_dir(job.folder)  # of a job that died before it began
        with job.said:
            job.said.seek(0)
            lines = job.said.read().decode("utf-8", "replace").splitlines()
        status = _STATUSES.get(code, "failed")
        statuses.append(status)
        begun = invocation.current.sweep
        assert begun is not None  # noqa: S101 - the sweeper has begun it
        errors = [make_error(*found.groups()) for line in lines if (found := _ERROR.fullmatch(line))]
        for line in lines:
            warning = "warning: " if line.startswith("warning: ") else ""
            message = line.removeprefix(warning)
            name = job.name if warning else None
            if not _ERROR.fullmatch(line) and not invocation.current.is_said(message, name):
                style = "bold yellow" if warning else None
                self._console.print(f"{warning}{job.name}: {message}", style=style, soft_wrap=True)
        if status == "completed":
            ended = invocation.current.describe_ended([*invocation.current.statuses, *statuses])
            self._console.print(status_line(look_at(job.folder, job.name)) + ended, soft_wrap=True)
        if status == "failed":
            signalled = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            cause = errors[-1] if errors else EvorunError(signalled)
            self._fail(job.name, str(job.folder.relative_to(begun.folder)), cause)

    def _fail(self, name: str, folder: str, cause: EvorunError) -> None:
        begun = invocation.current.sweep
        assert begun is not None  # noqa: S101 - the sweeper has begun it
        error = str(cause)
        begun.note_failure(folder, error)
        if output.on_error is not None:
            output.on_error(error, cause)
            return
        if invocation.current.is_said(error):
            error = "failed, for the reason above"
        self._console.print(Text.assemble(("error:", "bold red"), f" {name}: {error}"), soft_wrap=True)

    def _stop(self, running: Sequence[_Running], statuses: list[str]) -> None:
        """Interrupt jobs, wait for their end and add their statuses; a second interrupt kills them."""
        try:
            for job in running:
                job.process.terminate()
            for job in running:
                self._end(job, statuses)
        except KeyboardInterrupt:
            for job in running:
                job.process.kill()
            raise

    @contextlib.contextmanager
    def _display(self, running: dict[int, _Running], statuses: list[str], jobs: int) -> Iterator[Any]:
        """Show a line per running job on a terminal; yield what refreshes it."""
        if not self._console.is_terminal:
            yield lambda: None
            return

        def look() -> RenderableType:
            lines = [status_line(look_at(job.folder, job.name, begun=True)) for job in running.values()]
            head = f"{len(statuses)} of {jobs} jobs have ended, {len(running)} run"
            return Group(Text(head, "bold"), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

        shown = 0.0
        with Live(console=self._console, auto_refresh=False, transient=True) as live:

            def refresh() -> None:
                nonlocal shown
                if time.monotonic() - shown >= _REFRESH_S:
                    shown = time.monotonic()
                    live.update(look(), refresh=True)

            yield refresh


def share_machine(jobs: int | None) -> list[dict[str, str]]:
    """Return the environment of each of the jobs that run at once: its own GPUs, or its share of the cores.

    jobs: how many; None: one per GPU, or without any one per core. More jobs than GPUs share them in turn.
    """
    gpus, cores = visible_gpus(), len(os.sched_getaffinity(0))
    count = jobs or len(gpus) or cores
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(max(1, cores // count))}
    if not gpus:
        return [threads] * count
    return [{**threads, VISIBLE: ",".join(gpus[slot::count] or [gpus[slot % len(gpus)]])} for slot in range(count)]


def divide_machine(
    jobs: int | None, group: JobGroup, engines: "SharedEngines"
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the environments of jobs that run at once, and of the processes that serve models to them in turn.

    jobs: how many at once; None: as in `share_machine`, or one per core where models are shared. engines: the needs of
    the models. As many processes serve models as the GPUs suffice for; without GPUs, one.
    """
    if not group.models:
        return share_machine(jobs), []
    count = min(jobs or len(os.sched_getaffinity(0)), len(group.jobs))
    places = share_machine(max(1, min(count, len(visible_gpus()) // gpus_of(group, engines))))
    # a job records the GPUs of the process that answers it, and loads nothing there itself
    return [{**share, **places[slot % len(places)]} for slot, share in enumerate(share_machine(count))], places


def returned(status: str) -> JobReturn:
    """Return what a launcher returns to Hydra for a job that ended with this status."""
    job = JobReturn(status=JobStatus.COMPLETED)
    job.return_value = status
    return job


Plugins.instance().class_name_to_class[TARGET] = LocalLauncher

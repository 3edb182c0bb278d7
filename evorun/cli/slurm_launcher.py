"""`hydra/launcher=slurm`: the jobs of a sweep as one SLURM job array, each in a process that composes nothing.

submitit, for which Hydra has a launcher, learns a job's end from a pickle that the job leaves or from SLURM's accounts.
Without either it waits for ever, and it takes a preempted job's first end for its last. A run's directory tells more.
"""

import contextlib
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from msgspec.structs import replace
from omegaconf import DictConfig, OmegaConf

from evorun.cli import invocation
from evorun.cli.invocation import BegunSweep
from evorun.cli.job_command import compose_job
from evorun.cli.local_launcher import returned
from evorun.cli.status_table import status_line
from evorun.errors import ConfigError
from evorun.runner.typed import typed
from evorun.runs import slurm
from evorun.runs.files import reject_links
from evorun.runs.formats import counted
from evorun.runs.job_states import look_at
from evorun.runs.sweeps import SLURM_FILES, JobInSweep, read_sweep, write_sweep
from evorun.runs.terminal import Terminal

TARGET = "hydra_plugins.evorun.SlurmLauncher"
"""The name in `conf/hydra/launcher/slurm.yaml`."""

_POLL_S = 1.0


@dataclass
class SlurmConfig:
    """`hydra.launcher` of `hydra/launcher=slurm`."""

    detach: bool = False
    """True: return when the jobs are submitted."""
    name: str = "evorun"
    """Name of the job array."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    timeout_min: int = 720
    """Time limit of a job, in minutes."""
    nodes: int = 1
    """Nodes of a job; its run is on the first one, its trainer on all."""
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gres: str | None = None
    """Generic resources of a job, such as `gpu:a100:1`."""
    mem_gb: int | None = None
    """Memory of a job on each of its nodes, in GB."""
    array_parallelism: int | None = None
    """Jobs that run at once; None: all."""
    signal_delay_s: int = 120
    """Seconds before the time limit at which a job is warned."""
    max_requeues: int = 20
    """Times that a job is queued again at most."""
    setup: list[str] = field(default_factory=list)
    """Lines of the batch script before the job."""
    additional_parameters: dict[str, Any] | None = None
    """Further options of sbatch by name, without dashes; true for one without a value."""

    def __post_init__(self) -> None:
        positive = ("timeout_min", "nodes", "cpus_per_task", "gpus_per_node", "mem_gb", "array_parallelism")
        for name, minimum in {**dict.fromkeys(positive, 1), "signal_delay_s": 0, "max_requeues": 0}.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigError(f"hydra.launcher.{name}: expected a number >= {minimum}, got {value}")


class SlurmLauncher(Launcher):
    """Hydra's launcher of a job array; it waits for the jobs' end unless `detach` is set."""

    def __init__(self, **settings: Any) -> None:
        self._given = settings
        self._settings = SlurmConfig()
        self._console = Terminal(stderr=True)
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context

    def check(self) -> None:
        """Raise ConfigError for wrong settings, and on a machine that submits no jobs."""
        given = {
            key: OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
            for key, value in self._given.items()
        }
        self._settings = typed(SlurmConfig, given, "hydra.launcher")
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "hydra/launcher=slurm: expected a machine that submits SLURM jobs, found no sbatch on PATH; log in to "
                "the cluster, or leave the launcher out to run the jobs here, one after the other"
            )

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs, and return when all have ended; an interrupt ends the wait, and not the jobs."""
        begun = invocation.current.sweep
        assert begun is not None  # noqa: S101 - the sweeper has begun it
        jobs = begun.jobs[initial_job_idx : initial_job_idx + len(job_overrides)]
        ids = self._submit(begun, jobs, job_overrides, initial_job_idx)
        count, array = len(jobs), ids[0].partition("_")[0]
        self._console.print(f"submitted {counted(count, 'job')} to SLURM: array {array}", soft_wrap=True)
        begun.submitted.append(array)
        if self._settings.detach:
            return [returned("submitted") for _ in jobs]
        self._wait(begun, dict(zip(ids, jobs, strict=True)))
        states = [look_at(begun.folder / job.folder, "").state for job in jobs]
        statuses = ["completed" if state == "done" else "failed" for state in states]
        begun.submitted.remove(array)
        invocation.current.statuses += statuses
        return [returned(status) for status in statuses]

    def _submit(
        self, begun: BegunSweep, jobs: Sequence[JobInSweep], overrides: Sequence[Sequence[str]], first: int
    ) -> list[str]:
        """Submit jobs as an array and return their ids. Raises ConfigError where one cannot be composed or queued."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        reject_links(begun.folder)
        files = begun.folder / SLURM_FILES
        files.mkdir(exist_ok=True)
        number = 1 + max((int(path.name) for path in files.iterdir() if path.name.isdecimal()), default=0)
        inputs = files / str(number)
        inputs.mkdir()
        for index, (job, words) in enumerate(zip(jobs, overrides, strict=True)):
            given = compose_job(self.hydra_context, self.config, words, first + index, str(begun.folder / job.folder))
            (inputs / f"{index}.json").write_bytes(msgspec.json.encode(given))
        script = inputs / "batch.sh"
        script.write_text(batch_script(inputs, self._settings))
        command = ["sbatch", *sbatch_options(self._settings, files.absolute(), len(jobs)), str(script)]
        try:
            # the whole environment, which the jobs inherit: keys of servers stand nowhere else
            done = subprocess.run(command, capture_output=True, text=True, timeout=slurm.LIMIT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"hydra/launcher=slurm: sbatch cannot be run: {error}") from error
        if done.returncode != 0:
            shutil.rmtree(inputs)
            with contextlib.suppress(OSError):  # it has those of earlier jobs
                files.rmdir()
            reasons = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in done.stderr.splitlines()]
            raise ConfigError(
                f"hydra/launcher=slurm: expected jobs that the cluster accepts, sbatch said: {'; '.join(reasons)}"
            )
        array, _, cluster = done.stdout.strip().partition(";")  # where there are several, sbatch names the cluster
        ids = [f"{array}_{index}" for index in range(len(jobs))]
        _note_ids(begun, jobs, ids, cluster or slurm.find_cluster())
        return ids

    def _wait(self, begun: BegunSweep, left: dict[str, JobInSweep]) -> None:
        """Print each job as it ends; return when none is left."""
        asked = -slurm.ASK_INTERVAL_S
        while left:
            ended = []
            if time.monotonic() - asked >= slurm.ASK_INTERVAL_S:
                states = slurm.query_states(left)
                asked = time.monotonic()
                # no answer: a controller that restarts
                ended = [] if states is None else [job for job in left if slurm.has_ended(states.get(job))]
            for number, job in list(left.items()):
                status = look_at(begun.folder / job.folder, begun.names[job.folder])
                if status.is_done or number in ended:
                    del left[number]
                    self._console.print(status_line(status), soft_wrap=True)
            if left:
                time.sleep(_POLL_S)


def sbatch_options(settings: SlurmConfig, files: Path, jobs: int) -> list[str]:
    """Return the options of sbatch for an array of jobs that write their logs into a folder."""
    at_once = "" if settings.array_parallelism is None else f"%{settings.array_parallelism}"
    # `%` begins a pattern in the name of a log
    values: Mapping[str, Any] = {
        "parsable": True,
        "job-name": settings.name,
        "array": f"0-{jobs - 1}{at_once}",
        "nodes": settings.nodes,
        "ntasks-per-node": 1,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "time": settings.timeout_min,
        "cpus-per-task": settings.cpus_per_task,
        "gpus-per-node": settings.gpus_per_node,
        "gres": settings.gres,
        "mem": None if settings.mem_gb is None else f"{settings.mem_gb}G",
        # B: to the batch script alone, which is the job's process; its children need no warning
        "signal": f"B:USR1@{settings.signal_delay_s}",
        "requeue": True,  # after a preemption, or the loss of a node
        "open-mode": "append",
        "output": f"{str(files).replace('%', '%%')}/%A_%a.log",
        **(settings.additional_parameters or {}),
    }
    set_ = {key: value for key, value in values.items() if value is not None and value is not False}
    return [f"--{key}" if value is True else f"--{key}={value}" for key, value in set_.items()]


def describe_submission(settings: Mapping[str, Any], jobs: int) -> str:
    """Return the command that submits a sweep's jobs, in a line. Raises ConfigError for wrong settings."""
    checked = typed(SlurmConfig, {key: value for key, value in settings.items() if key != "_target_"}, "hydra.launcher")
    files = Path("SWEEP_DIR", SLURM_FILES)
    return shlex.join(["sbatch", *sbatch_options(checked, files, jobs), str(files / "1" / "batch.sh")])


def batch_script(inputs: Path, settings: SlurmConfig) -> str:
    """Return the batch script of an array whose inputs lie in a folder."""
    # `exec`: SLURM's signals reach the process that it started, which is the job's own then
    module = ["exec", sys.executable, "-m", "evorun.cli.slurm_job"]
    file = f'{shlex.quote(str(inputs.absolute()))}/"$SLURM_ARRAY_TASK_ID".json'
    return "\n".join(["#!/bin/bash", *settings.setup, f"{shlex.join(module)} {file} {settings.max_requeues}", ""])


def _note_ids(begun: BegunSweep, jobs: Sequence[JobInSweep], ids: Sequence[str], cluster: str | None) -> None:
    """Write the ids of submitted jobs, and their cluster, into the sweep's manifest."""
    submitted = {job.folder: number for job, number in zip(jobs, ids, strict=True)}
    sweep = read_sweep(begun.folder)
    noted = [
        replace(job, scheduler_id=submitted[job.folder], cluster=cluster) if job.folder in submitted else job
        for job in sweep.jobs
    ]
    write_sweep(begun.folder, replace(sweep, jobs=tuple(noted)))


Plugins.instance().class_name_to_class[TARGET] = SlurmLauncher

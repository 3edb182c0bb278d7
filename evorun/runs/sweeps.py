"""The manifest of a sweep: its jobs, known before the first one starts, and the command that they come from."""

import logging
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

import evorun
from evorun.errors import RunDirectoryError
from evorun.runs import slurm
from evorun.runs.directory import LOCK, MANIFEST, current_time
from evorun.runs.files import is_locked, read_json
from evorun.runs.job_overrides import join_overrides
from evorun.runs.job_states import JobStatus, State, count_states, describe_unseen, last_line, look_at
from evorun.runs.ownership import is_signature, sign
from evorun.runs.paths import display
from evorun.runs.records import write_json
from evorun.runs.stated_studies import RecordedStudy

SWEEP_MANIFEST = "sweep.json"

SLURM_FILES = ".slurm"
"""Folder, in a sweep's, of what SLURM's jobs are given and print."""

_NOT_DECIDING = ("hydra.sweep.dir=", "hydra/launcher=", "hydra.launcher.")
"""Beginnings of a command's words that say where and by which launcher its jobs run."""

_log = logging.getLogger(__name__)


class JobInSweep(msgspec.Struct, frozen=True):
    """A job of a sweep."""

    folder: str
    """Its run directory, relative to the sweep's folder."""
    overrides: tuple[str, ...]
    """Overrides that compose the job, KEY=VALUE, as typed on a command line."""
    scheduler_id: str | None = None
    """Its id at the scheduler, such as SLURM's `1234_5`; null where no scheduler has it."""
    cluster: str | None = None
    """The cluster whose scheduler gave the id; null where its name is not known."""
    error: str | None = None
    """Why it could not begin when it was last tried; null where it began, or was not tried."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.folder)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in self.folder:
            raise ValueError(f"expected a folder below the sweep's, got {self.folder!r}")


class SweepManifest(msgspec.Struct, frozen=True, kw_only=True):
    """sweep.json."""

    evorun_version: str
    created: str
    """Time at which the sweep was first started, in ISO 8601 with the zone."""
    command: tuple[str, ...]
    """The command line, word by word; that of the last start where there were several."""
    earlier_commands: tuple[tuple[str, ...], ...] = ()
    """The other command lines that made jobs of the sweep, in order, each once."""
    working_folder: str
    """The folder in which the command was given, absolute: relative paths in it and in overrides start there."""
    host: str
    """Name of the machine on which the command was given."""
    launcher: str
    """Launcher of the jobs: the choice of `hydra/launcher`."""
    jobs: tuple[JobInSweep, ...]
    """All jobs, in the order in which they start."""
    study: RecordedStudy | None = None
    """The study file that states the sweep, as it was before the first job; null without one."""
    signature: str | None = None
    """Signature of all else by the user who started it."""


def new_sweep(
    command: Iterable[str],
    launcher: str,
    jobs: Iterable[JobInSweep],
    study: RecordedStudy | None = None,
    earlier_commands: Iterable[Sequence[str]] = (),
) -> SweepManifest:
    """Return the manifest of a sweep that starts now, from the present working folder."""
    return SweepManifest(
        evorun_version=evorun.__version__,
        created=current_time(),
        command=tuple(command),
        earlier_commands=tuple(map(tuple, earlier_commands)),
        working_folder=str(Path.cwd()),
        host=platform.node(),
        launcher=launcher,
        jobs=tuple(jobs),
        study=study,
    )


def is_sweep(folder: Path) -> bool:
    """Return whether a folder holds a sweep's manifest."""
    return (folder / SWEEP_MANIFEST).exists()


def read_sweep(folder: Path) -> SweepManifest:
    """Read a sweep's manifest. Raises RunDirectoryError where there is none, or it is malformed."""
    missing = f"{display(folder)} is not a sweep's folder: expected a file {SWEEP_MANIFEST} in it"
    return read_json(folder / SWEEP_MANIFEST, SweepManifest, missing=missing)


def find_job(run: Path) -> tuple[str, int] | None:
    """Return when the sweep of a run directory began, and the run's place among its jobs; None outside a sweep."""
    try:
        sweep = read_sweep(run.resolve().parent)
    except RunDirectoryError:
        return None
    folders = [job.folder for job in sweep.jobs]
    return (sweep.created, folders.index(run.resolve().name)) if run.resolve().name in folders else None


def write_sweep(folder: Path, sweep: SweepManifest) -> None:
    """Sign a sweep's manifest and write it, atomically. Raises RunDirectoryError."""
    signature = sign(_signed(sweep))
    write_json(folder / SWEEP_MANIFEST, msgspec.structs.replace(sweep, signature=signature))


def is_own_sweep(sweep: SweepManifest) -> bool:
    """Return whether this user signed the manifest as it is."""
    return is_signature(sweep.signature, _signed(sweep))


def with_jobs(earlier: SweepManifest, now: SweepManifest) -> SweepManifest:
    """Return the manifest of a sweep that is started again: its earlier jobs first, in their order, then the new ones.

    A job of both has the overrides of now; a study stays as it was first recorded. Commands that differ only in where
    and by which launcher their jobs run count once.
    """
    jobs = {job.folder: job for job in (*earlier.jobs, *now.jobs)}
    given = (*earlier.earlier_commands, earlier.command, *now.earlier_commands)
    commands = {_list_deciding(command): command for command in given}
    commands.pop(_list_deciding(now.command), None)
    return msgspec.structs.replace(
        now,
        created=earlier.created,
        earlier_commands=tuple(commands.values()),
        jobs=tuple(jobs.values()),
        study=earlier.study or now.study,
    )


def _list_deciding(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command that decide which jobs it makes."""
    return tuple(word for word in command if not word.lstrip("+").startswith(_NOT_DECIDING))


def record_failure(folder: Path, job: str, error: str) -> None:
    """Record in a sweep's manifest why one of its jobs, named by its folder, could not begin."""
    sweep = read_sweep(folder)
    jobs = tuple(msgspec.structs.replace(each, error=error) if each.folder == job else each for each in sweep.jobs)
    write_sweep(folder, msgspec.structs.replace(sweep, jobs=jobs))


def _signed(sweep: SweepManifest) -> dict[str, object]:
    content: dict[str, object] = msgspec.to_builtins(sweep)
    if not sweep.earlier_commands:  # signatures of manifests without this field stay valid
        del content["earlier_commands"]
    return {key: value for key, value in content.items() if key != "signature"}


def job_names(jobs: Sequence[JobInSweep]) -> list[str]:
    """Return what tells each job from the others: the overrides that not all of them have, else its folder."""
    names = join_overrides([job.overrides for job in jobs])
    unique = len(set(names)) == len(names) and all(names)
    return names if unique else [job.folder for job in jobs]


class Look(Protocol):
    """Returns a job's status from its run directory, as `look_at`."""

    def __call__(self, run: Path, name: str, *, begun: bool = False) -> JobStatus:
        """Return the status."""
        ...


def job_statuses(
    folder: Path,
    sweep: SweepManifest,
    look: Look = look_at,
    ask: Callable[[Collection[str]], dict[str, str] | None] | None = None,
) -> list[JobStatus]:
    """Return the status of each job of a sweep in this folder.

    look: reads the files of one. ask: SLURM's states of jobs, as `query_states`, which it is by default.
    """
    starts_jobs = sweep.launcher != "slurm" and is_locked(folder / LOCK)
    seen = []
    for job, name in zip(sweep.jobs, job_names(sweep.jobs), strict=True):
        run = folder / job.folder
        # a launcher makes the folder before the job's process has loaded anything
        status = look(run, name, begun=starts_jobs and run.is_dir())
        if status.state == "waiting" and job.error is not None:
            status = msgspec.structs.replace(status, state="failed", error=job.error, begun=False)
        seen.append(msgspec.structs.replace(status, scheduler_id=job.scheduler_id))
    if sweep.launcher != "slurm":
        if sweep.host != platform.node():
            seen = [_unless_lost(status, describe_unseen(sweep.host)) for status in seen]
        return seen
    left = [job for job, status in zip(sweep.jobs, seen, strict=True) if job.scheduler_id and not status.is_done]
    here = slurm.find_cluster() if any(job.cluster for job in left) else None
    asked = [job for job in left if job.cluster in (None, here)]  # another cluster has other jobs of these ids
    states = (ask or slurm.query_states)([str(job.scheduler_id) for job in asked])
    statuses = []
    for job, status in zip(sweep.jobs, seen, strict=True):
        if job in asked:
            statuses.append(_in_slurm(folder, job, status, states, look))
        else:
            statuses.append(_on_cluster(job, status) if job in left else status)
    return statuses


def describe_unfinished(runs: Sequence[Path]) -> list[str]:
    """Return a line for each sweep, all of whose runs are among the given ones, that has jobs which are not done."""
    given = {run.resolve() for run in runs}
    lines = []
    for folder in dict.fromkeys(run.resolve().parent for run in runs):
        if not is_sweep(folder):
            continue
        try:
            sweep = read_sweep(folder)
        except RunDirectoryError as error:
            _log.warning("%s", error)
            continue
        jobs = job_statuses(folder, sweep)
        left = [job for job in jobs if job.state != "done"]
        begun = {(folder / job.folder).resolve() for job in sweep.jobs if (folder / job.folder / MANIFEST).exists()}
        if left and begun <= given:
            lines.append(
                f"{len(jobs) - len(left):,} of the {len(jobs):,} jobs of {display(folder)} are done "
                f"({count_states(left)}): these are figures so far."
            )
    return lines


def _in_slurm(
    folder: Path, job: JobInSweep, status: JobStatus, states: Mapping[str, str] | None, look: Look
) -> JobStatus:
    """Return the status of a job that SLURM was given. states: what SLURM says, by id; None: it does not answer."""
    number = str(job.scheduler_id)
    if states is None:
        return _unless_lost(status, f"a job of SLURM, which may run elsewhere: squeue -j {number}")
    queued = states.get(number)
    status = msgspec.structs.replace(status, scheduler_state=queued)
    if queued is not None and slurm.is_waiting(queued):
        return msgspec.structs.replace(status, state="waiting")
    if not slurm.has_ended(queued):  # on another machine, a lock and what a job is at may not be seen
        at_work: dict[State, State] = {"lost": "running", "done": "reporting"}
        at_work |= {"waiting": "starting", "interrupted": "starting", "failed": "starting"}
        return msgspec.structs.replace(status, state=at_work.get(status.state, status.state), note=None)
    if status.state not in ("waiting", "lost"):
        return status
    again = look(folder / job.folder, status.name)  # it may have ended between the look and the answer
    if again.state not in ("waiting", "lost"):
        return msgspec.structs.replace(again, scheduler_id=number, scheduler_state=queued)
    said = f"SLURM's job {number} is {'no longer known' if queued is None else queued}"
    log = f"{SLURM_FILES}/{number}.log"
    # somebody else's manifest, or a link, may name any file of this machine
    is_inside = (folder / log).resolve() == folder.resolve() / log
    if is_inside and (last := last_line(folder / log)):
        said += f"; the last line of {log}: {last}"
    return msgspec.structs.replace(status, state="lost", note=said)


def _on_cluster(job: JobInSweep, status: JobStatus) -> JobStatus:
    """Return the status of a job of a cluster that cannot be asked from here."""
    unseen = f"a job of the cluster {job.cluster}, which alone can say more: squeue -j {job.scheduler_id}"
    status = _unless_lost(status, unseen)
    return msgspec.structs.replace(status, note=unseen) if status.state == "waiting" else status


def _unless_lost(status: JobStatus, unseen: str) -> JobStatus:
    """Return the status of a job whose process may not be seen from here, for a reason."""
    return msgspec.structs.replace(status, state="running", note=unseen) if status.state == "lost" else status

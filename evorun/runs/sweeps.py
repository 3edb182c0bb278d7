"""The manifest of a sweep: its jobs, known before the first one starts, and the command that they come from."""

import logging
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

import evorun
from evorun.errors import RunDirectoryError
from evorun.runs.directory import LOCK, MANIFEST, current_time
from evorun.runs.files import is_locked, read_json
from evorun.runs.job_states import JobStatus, count_states, look_at
from evorun.runs.ownership import is_signature, sign
from evorun.runs.paths import display
from evorun.runs.records import write_json
from evorun.runs.stated_studies import RecordedStudy

SWEEP_MANIFEST = "sweep.json"

_log = logging.getLogger(__name__)


class JobInSweep(msgspec.Struct, frozen=True):
    """A job of a sweep."""

    folder: str
    """Its run directory, relative to the sweep's folder."""
    overrides: tuple[str, ...]
    """Overrides that compose the job, KEY=VALUE, as typed on a command line."""
    scheduler_id: str | None = None
    """Its id at the scheduler, such as SLURM's `1234_5`; null where no scheduler has it."""

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
    command: Iterable[str], launcher: str, jobs: Iterable[JobInSweep], study: RecordedStudy | None = None
) -> SweepManifest:
    """Return the manifest of a sweep that starts now, from the present working folder."""
    return SweepManifest(
        evorun_version=evorun.__version__,
        created=current_time(),
        command=tuple(command),
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


def write_sweep(folder: Path, sweep: SweepManifest) -> None:
    """Sign a sweep's manifest and write it, atomically. Raises RunDirectoryError."""
    signature = sign(_signed(sweep))
    write_json(folder / SWEEP_MANIFEST, msgspec.structs.replace(sweep, signature=signature))


def is_own_sweep(sweep: SweepManifest) -> bool:
    """Return whether this user signed the manifest as it is."""
    return is_signature(sweep.signature, _signed(sweep))


def with_jobs(earlier: SweepManifest, now: SweepManifest) -> SweepManifest:
    """Return the manifest of a sweep that is started again: its earlier jobs first, in their order, then the new ones.

    A job of both has the overrides of now; a study stays as it was first recorded.
    """
    jobs = {job.folder: job for job in (*earlier.jobs, *now.jobs)}
    study = earlier.study or now.study
    return msgspec.structs.replace(now, created=earlier.created, jobs=tuple(jobs.values()), study=study)


def _signed(sweep: SweepManifest) -> dict[str, object]:
    content: dict[str, object] = msgspec.to_builtins(sweep)
    return {key: value for key, value in content.items() if key != "signature"}


def job_names(jobs: Sequence[JobInSweep]) -> list[str]:
    """Return what tells each job from the others: the overrides that not all of them have, else its folder."""
    common = set.intersection(*(set(job.overrides) for job in jobs)) if jobs else set()
    names = [" ".join(word for word in job.overrides if word not in common) for job in jobs]
    unique = len(set(names)) == len(names) and all(names)
    return names if unique else [job.folder for job in jobs]


def job_statuses(folder: Path, sweep: SweepManifest) -> list[JobStatus]:
    """Return the status of each job of a sweep in this folder."""
    goes_on = is_locked(folder / LOCK)
    statuses = []
    for job, name in zip(sweep.jobs, job_names(sweep.jobs), strict=True):
        run = folder / job.folder
        # a launcher makes the folder before the job's process has loaded anything
        status = look_at(run, name, _unseen(sweep, job), begun=goes_on and run.is_dir())
        statuses.append(msgspec.structs.replace(status, scheduler_id=job.scheduler_id))
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


def _unseen(sweep: SweepManifest, job: JobInSweep) -> str | None:
    """Return why a process that works on a job may not be seen from here; None where it would be."""
    if job.scheduler_id is not None and sweep.launcher == "slurm":
        return f"a job of SLURM, which may run elsewhere: squeue -j {job.scheduler_id}"
    if sweep.host != platform.node():
        return f"started on {sweep.host}, where alone it can be seen whether it still runs"
    return None

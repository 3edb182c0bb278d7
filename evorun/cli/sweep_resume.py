"""`evorun resume SWEEP_DIR`: the jobs of a sweep that are not done, by the launcher of its start or another one."""

import contextlib
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from evorun.cli.naming import SWEEP
from evorun.cli.overrides import OF_LAUNCHER, change, read_key
from evorun.cli.quoting import quoted
from evorun.cli.trust import require_sweep_trust, require_trust
from evorun.errors import ConfigError, RunDirectoryError
from evorun.runs import slurm
from evorun.runs.directory import LOCK, MANIFEST, load_manifest, name_plugin, refuse_other_version
from evorun.runs.files import is_locked, reject_links
from evorun.runs.job_states import JobStatus
from evorun.runs.manifest import PluginInRun
from evorun.runs.paths import display
from evorun.runs.sweeps import SWEEP_MANIFEST, SweepManifest, is_sweep, job_statuses, read_sweep
from evorun.runs.terminal import Terminal

_log = logging.getLogger(__name__)


def is_sweep_folder(folder: Path) -> bool:
    """Return whether a folder is a sweep's. Raises ConfigError for one that has lost its manifest."""
    if (folder / MANIFEST).exists():
        return False
    if not is_sweep(folder) and (folder / SWEEP).is_file():
        raise ConfigError(
            f"{display(folder)}: expected a sweep's {SWEEP_MANIFEST}, found none; give the sweep's own command once "
            f"more with hydra.sweep.dir={display(folder)}, or resume a single job"
        )
    return is_sweep(folder)


def resume_sweep(folder: Path, changes: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Carry out the jobs of a sweep that are not done; return the exit code.

    changes: KEY=VALUE of the launcher, and of how the jobs are executed. Raises ConfigError or RunDirectoryError for a
    sweep that runs, one of another version of evorun, and one that the user does not trust.
    """
    from evorun.cli.launch import run_hydra

    sweep = read_sweep(folder)
    refuse_other_version(folder, sweep.evorun_version)
    of_launcher = [word for word in changes if word.startswith(OF_LAUNCHER)]
    of_jobs = [word for word in changes if word not in of_launcher]
    change({}, of_jobs)  # refuses what may not change
    reject_links(folder)
    jobs = job_statuses(folder, sweep)
    _refuse_running(folder, jobs)
    left = [job for job, status in zip(sweep.jobs, jobs, strict=True) if not status.is_done]
    if not left:
        shown = shlex.quote(display(folder))
        console.print(f"all {len(jobs)} jobs are done; compare them: evorun report {shown}", soft_wrap=True)
        for line in _list_changed_code(folder, sweep):
            console.print(line, style="yellow", soft_wrap=True)
        return 0
    require_sweep_trust(folder, sweep, console, given=trust)
    for job in left:
        if (folder / job.folder / MANIFEST).exists():
            with contextlib.suppress(RunDirectoryError):  # the job itself reports a manifest that cannot be read
                manifest = load_manifest(folder / job.folder)
                require_trust(folder / job.folder, manifest, manifest.config, console, given=trust)
    complete = sum(job.state == "done" for job in jobs)  # as tables of jobs count them
    reports = f", {unreported} to report" if (unreported := complete - (len(jobs) - len(left))) else ""
    console.print(f"{complete} of {len(jobs)} jobs are done; {len(jobs) - complete} to go{reports}", soft_wrap=True)
    changed = [read_key(word) for word in of_jobs]
    resumed = {
        job.folder: [*(word for word in job.overrides if read_key(word) not in changed), *of_jobs] for job in left
    }
    folder = folder.absolute()
    with _in_folder(sweep, console):
        return run_hydra([*_words(sweep.command[1:], of_launcher), f"hydra.sweep.dir={_value(folder)}"], resumed)


def _list_changed_code(folder: Path, sweep: SweepManifest) -> list[str]:
    """Return a line for each plug-in whose code has changed since a sweep's jobs were done, with what can be done."""
    from evorun.runner.registry import blaming_plugins, find_plugin

    now: dict[tuple[str, str], PluginInRun | None] = {}
    changed: Counter[str] = Counter()
    with blaming_plugins():
        for manifest in (load_manifest(folder / job.folder) for job in sweep.jobs):
            for kind, recorded in manifest.plugins.items():
                place = kind, recorded.module
                if place not in now:
                    now[place] = find_plugin(*place)
                if now[place] not in (None, recorded):
                    changed[name_plugin(manifest, kind)] += 1
    shown = shlex.quote(display(folder))
    grade = f"grade their texts by it: evorun rejudge {shown}; or "
    return [
        f"the code of {name} has changed since {number:,} of them: "
        f"{grade if name.startswith(('task=', 'grader=')) else ''}repeat them by it: evorun replay {shown}"
        for name, number in changed.items()
    ]


def add_jobs(folder: Path, values: Sequence[str], console: Terminal, *, trust: bool) -> int:
    """Add a sweep's jobs with other values of some keys to its own folder and carry them out; return the exit code.

    Its earlier jobs stay. Raises ConfigError or RunDirectoryError, as `resume_sweep` does.
    """
    from evorun.cli.launch import run_hydra
    from evorun.cli.sweep_extension import extend_commands

    sweep = read_sweep(folder)
    refuse_other_version(folder, sweep.evorun_version)
    reject_links(folder)
    _refuse_running(folder, job_statuses(folder, sweep))
    require_sweep_trust(folder, sweep, console, given=trust)
    commands = (sweep.command, *reversed(sweep.earlier_commands))
    given = {tuple(words): words for words in (_words(command[1:], values) for command in commands)}
    last, *earlier = given.values()
    folder = folder.absolute()
    with _in_folder(sweep, console):
        added = extend_commands(folder, sweep.jobs, [*reversed(earlier), last], values, console)
        return run_hydra([*last, f"hydra.sweep.dir={_value(folder)}"], added=added)


def read_finished_jobs(folder: Path) -> list[str]:
    """Return the folders of a sweep's finished jobs, relative to its own."""
    sweep = read_sweep(folder)
    reject_links(folder)
    return [job.folder for job, status in zip(sweep.jobs, job_statuses(folder, sweep), strict=True) if status.is_done]


def _refuse_running(folder: Path, jobs: Sequence[JobStatus]) -> None:
    if is_locked(folder / LOCK):
        raise RunDirectoryError(
            f"another evorun process is carrying out the sweep in {display(folder)}; wait for it or stop it, and see "
            f"evorun status {shlex.quote(display(folder))}"
        )
    for job in jobs:
        if not job.is_done and job.scheduler_state is not None and not slurm.has_ended(job.scheduler_state):
            raise RunDirectoryError(
                f"{display(folder)}: job {job.scheduler_id} is in SLURM's queue ({job.name}); wait for it, or "
                f"cancel it: scancel {job.scheduler_id}"
            )
    waiting_elsewhere = [job for job in jobs if job.state == "waiting" and job.scheduler_id and job.note]
    for job in (*waiting_elsewhere, *(job for job in jobs if job.is_under_way)):
        if job.note is None:
            raise RunDirectoryError(
                f"{display(folder)}: a job still runs ({job.name}); wait for it or stop it, and see "
                f"evorun status {shlex.quote(display(folder))}"
            )
        _log.warning("%s: %s; if it does, its lock keeps it from running twice", job.name, job.note)


def _words(command: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the sweep's arguments with the given ones in place of those that they replace."""
    replaced = {read_key(word) for word in given} | {"hydra.sweep.dir"}
    kept = [word for word in command if word.startswith("-") or read_key(word) not in replaced]
    if "hydra/launcher" in replaced:  # the other one's settings
        kept = [word for word in kept if not read_key(word).startswith("hydra.launcher.")]
    return [*kept, *given]


def _value(folder: Path) -> str:
    path = display(folder)
    return path if re.fullmatch(r"[\w./-]+", path) else quoted(path)


@contextlib.contextmanager
def _in_folder(sweep: SweepManifest, console: Terminal) -> Iterator[None]:
    """Work in the folder in which the sweep's command was given, where its relative paths start."""
    where = Path(sweep.working_folder)
    if where == Path.cwd() or not where.is_dir():
        yield
        return
    console.print(f"going on in {where}, where the sweep was started", soft_wrap=True)
    with contextlib.chdir(where):
        yield

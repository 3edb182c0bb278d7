"""`evorun status`: how far runs and the jobs of sweeps are."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evorun.cli.status_table import describe_resume, group_by_arm, list_notes, status_table, title_of
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.runs import slurm
from evorun.runs.job_search import Overview, find_jobs
from evorun.runs.job_states import ORDER, JobStatus
from evorun.runs.terminal import Terminal

WATCH_INTERVAL_S = 2.0
"""Seconds between two looks at the folders."""


def print_status(arguments: Sequence[str], console: Terminal) -> None:
    """Print the jobs below the given folders, once or until Ctrl-C. Raises ConfigError for a wrong command line."""
    flags = [word for word in arguments if word.startswith("-")]
    folders = [Path(word) for word in arguments if not word.startswith("-")] or [Path("outputs")]
    if flags not in ([], ["--watch"], ["--json"]):
        raise ConfigError(f"expected: {USAGES['status'].synopsis}; got: {' '.join(arguments)}")
    if flags == ["--json"]:
        print(msgspec.json.format(msgspec.json.encode(find_jobs(folders)), indent=2).decode())
    elif flags == ["--watch"]:
        _watch(folders, console)
    else:
        overview = find_jobs(folders)
        if not overview.sweeps and not overview.runs:
            console.print(f"no runs below {', '.join(map(str, folders))}", soft_wrap=True)
        for title, jobs, stopped in _groups(overview):
            console.print_table(status_table(group_by_arm(jobs), title))
            console.print()
            for line in [*list_notes(jobs), *(describe_resume(*resumed) for resumed in stopped)]:
                console.print(line, soft_wrap=True)


def _groups(overview: Overview) -> Iterator[tuple[str, list[JobStatus], list[tuple[str, list[JobStatus]]]]]:
    """Yield the title of each table, its jobs, and the folders that a resume would continue, each with its jobs."""
    for sweep in overview.sweeps:
        launcher = "" if sweep.launcher == "basic" else f" ({sweep.launcher})"
        stopped = any(job.is_stopped for job in sweep.jobs) and not any(job.is_expected for job in sweep.jobs)
        resumed = [(sweep.folder, sweep.jobs)] if stopped else []
        yield title_of(f"{sweep.folder}{launcher}", sweep.jobs), sweep.jobs, resumed
    if overview.runs:
        stopped_runs = [(job.name, [job]) for job in overview.runs if job.is_stopped]
        yield title_of("runs", overview.runs), overview.runs, stopped_runs


def _watch(folders: Sequence[Path], console: Terminal) -> None:
    if not console.is_terminal:
        raise ConfigError("--watch: expected a terminal, got another output; leave it out, or use --json")

    def look() -> tuple[RenderableType, float]:
        parts: list[Table | Text] = []
        overview = find_jobs(folders)
        asks_slurm = any(sweep.launcher == "slurm" for sweep in overview.sweeps)
        pause = slurm.ASK_INTERVAL_S if asks_slurm else WATCH_INTERVAL_S
        for title, jobs, _ in _groups(overview):
            table = status_table(sorted(jobs, key=lambda job: ORDER.index(job.state)), title)
            parts += [*console.fit_table(table), *map(Text, list_notes(jobs))]
        ending = Text(f"every {pause:.0f} s; Ctrl-C ends this view, not the jobs", "dim")
        return Group(*(parts or [Text("no runs yet")]), ending), pause

    try:
        shown, pause = look()
        with Live(shown, console=console, auto_refresh=False) as live:
            while True:
                time.sleep(pause)
                shown, pause = look()
                live.update(shown, refresh=True)
    except KeyboardInterrupt:
        return

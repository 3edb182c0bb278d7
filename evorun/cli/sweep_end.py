"""The end of a sweep: a table of its jobs, its failures, and the commands that continue and compare it."""

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from evorun.cli.invocation import BegunSweep
from evorun.cli.status_table import describe_resume, list_notes, status_table, title_of
from evorun.runs.job_states import JobStatus
from evorun.runs.paths import display
from evorun.runs.sweeps import job_statuses, read_sweep
from evorun.runs.terminal import Terminal


def print_end(begun: BegunSweep, console: Terminal) -> None:
    """Print how a sweep ended or was interrupted; nothing of one in which no job has begun."""
    if not begun.folder.exists():
        return
    if begun.submitted:
        for line in describe_submitted(begun):
            console.print(line, soft_wrap=True)
        return
    said = {str(begun.folder / name): error for name, error in begun.errors.items()}
    jobs = [
        replace(job, state="failed", error=said[job.folder]) if job.folder in said and not job.is_done else job
        for job in job_statuses(begun.folder, read_sweep(begun.folder))
    ]
    console.print_table(status_table(jobs, title_of(display(begun.folder), jobs)))
    console.print()
    for line in describe_end(begun, jobs):
        console.print(line, soft_wrap=True)


def describe_submitted(begun: BegunSweep) -> list[str]:
    """Return the lines about jobs that a scheduler carries out while nobody waits for them."""
    folder = shlex.quote(display(begun.folder))
    return [
        f"the jobs go on by themselves; how far they are: evorun status {folder}",
        f"cancel them: scancel {' '.join(begun.submitted)}",
        f"once they have ended, continue what is not done: evorun resume {folder}",
    ]


def describe_end(begun: BegunSweep, jobs: Sequence[JobStatus]) -> list[str]:
    """Return the lines after the table: failures by name, and what to do next."""
    lines = list_notes(jobs)
    unfinished = sum(job.state != "done" for job in jobs)  # as the table's title counts them
    unreported = sum(job.state == "done" and not job.is_done for job in jobs)
    parts = [f"{unfinished} of {len(jobs)} jobs {'is' if unfinished == 1 else 'are'} not done"] if unfinished else []
    if unreported:
        parts.append(f"{unreported} {'lacks only its report' if unreported == 1 else 'lack only their reports'}")
    if parts:
        lines.append(f"{', '.join(parts)}; {describe_resume(display(begun.folder), jobs)}")
    if sum(job.state == "done" for job in jobs) > 1:
        lines.append(f"compare the jobs of the sweep: evorun report {shlex.quote(display(begun.folder))}")
    return lines

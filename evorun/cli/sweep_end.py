"""The end of a sweep: a table of its jobs, its failures, and the commands that continue and compare it."""

import shlex
import textwrap
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evorun.cli.invocation import BegunSweep, Invocation
from evorun.cli.status_table import describe_resume, group_by_arm, join_names, list_notes, status_table, title_of
from evorun.runs.job_states import JobStatus
from evorun.runs.paths import display
from evorun.runs.sweeps import job_statuses, read_sweep
from evorun.runs.terminal import Terminal

_SHOWN = 80
"""Characters of a warning that a line at the end shows at most (ours): all of it stands above."""


def print_end(invocation: Invocation, console: Terminal) -> None:
    """Print how a sweep ended or was interrupted; nothing of one in which no job has begun."""
    begun = invocation.sweep
    if begun is None or not begun.folder.exists():
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
    console.print_table(status_table(group_by_arm(jobs), title_of(display(begun.folder), jobs)))
    console.print()
    for line in (*describe_repeated(invocation.said), *describe_end(begun, jobs)):
        console.print(line, soft_wrap=True)


def describe_repeated(said: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each warning that other jobs gave, too, than the one that was printed with it.

    said: the jobs that gave a warning, in order.
    """
    return [
        f"warned alike: {join_names(jobs)}: {textwrap.shorten(message, _SHOWN, placeholder=' ...')}"
        for message, jobs in said.items()
        if len(jobs) > 1
    ]


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

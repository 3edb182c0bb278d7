"""A table of jobs: how far each is, its score and its cost."""

import shlex
from collections.abc import Sequence

from rich import box
from rich.table import Table

from evorun.runs.formats import compact, count, counted, format_dollars, name_score, value, value_interval
from evorun.runs.job_states import JobStatus, State, count_states
from evorun.runs.progress import format_clock
from evorun.runs.scores import Score

_ENDED_WELL: tuple[State, ...] = ("reporting", "done")
_NAMED = 4
"""Jobs that a line names at most (ours): the table marks all."""
_STYLES = {
    "failed": "bold red",
    "lost": "bold red",
    "interrupted": "yellow",
    "starting": "bold",
    "running": "bold",
    "reporting": "bold",
    "waiting": "dim",
}


def status_table(jobs: Sequence[JobStatus], title: str) -> Table:
    """Return the table; a column that no job has anything for is left out."""
    names = list(dict.fromkeys(name_score(_as_score(job)) for job in jobs if job.score is not None))
    columns: list[tuple[str, list[str]]] = [
        ("job", [job.name if job.replays is None else f"{job.name} (replay)" for job in jobs]),
        ("id", [job.scheduler_id or "" for job in jobs]),
        ("state", [job.state for job in jobs]),
        ("SLURM", [_in_slurm(job) for job in jobs]),
        ("progress", ["" if job.state in _ENDED_WELL else ", ".join([*_progress(job), *_left(job)]) for job in jobs]),
        (names[0] if len(names) == 1 else "score", [_score(job, named=len(names) > 1) for job in jobs]),
        ("95 % interval", [_interval(job) for job in jobs]),
        ("calls", [_cost(job.calls) for job in jobs]),
        ("tool calls", [_cost(job.tool_calls or None) for job in jobs]),
        ("tokens", [_cost(job.tokens) for job in jobs]),
        ("price", ["unknown" if job.price_unknown else _price(job.price) for job in jobs]),
        ("GPU s", ["" if job.gpu_seconds is None else count(job.gpu_seconds) for job in jobs]),
    ]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    shown = [(heading, cells) for heading, cells in columns if any(cells)]
    for heading, _ in shown:
        table.add_column(heading, justify="left" if heading in ("job", "id", "state", "SLURM") else "right")
    for job, *cells in zip(jobs, *(cells for _, cells in shown), strict=True):
        table.add_row(*cells, style=_STYLES.get(job.state))
    return table


def group_by_arm(jobs: Sequence[JobStatus]) -> list[JobStatus]:
    """Return the jobs with those together whose names differ in the seed alone."""
    arms = [" ".join(word for word in job.name.split() if not word.startswith("seed=")) for job in jobs]
    order = {arm: number for number, arm in enumerate(dict.fromkeys(arms))}
    return [job for _, job in sorted(zip(arms, jobs, strict=True), key=lambda pair: order[pair[0]])]


def title_of(name: str, jobs: Sequence[JobStatus]) -> str:
    """Return the title of a table of jobs: `outputs/a: 12 jobs: 9 done, 3 running`."""
    return f"{name}: {counted(len(jobs), 'job')}: {count_states(jobs)}"


def list_notes(jobs: Sequence[JobStatus]) -> list[str]:
    """Return a line for each reason of a state, or thing that it leaves open, with the jobs that it holds for."""
    names: dict[tuple[State, str], list[str]] = {}
    for job in jobs:
        if said := job.error or job.note:
            names.setdefault((job.state, " ".join(said.split())), []).append(job.name)
    lines = [f"{state}: {join_names(jobs_of_it)}: {said}" for (state, said), jobs_of_it in names.items()]
    equal = [job.name for job in jobs if job.value is not None and job.ci95 is None]
    return [
        *lines,
        *([f"all problems have the same score, so there is no interval: {join_names(equal)}"] if equal else []),
    ]


def join_names(names: Sequence[str]) -> str:
    """Return the names of jobs in one text, which leaves some out where they are many."""
    more = len(names) - _NAMED
    return "; ".join([*names[:_NAMED], *([f"{more:,} more"] if more > 0 else [])])


def describe_resume(folder: str, jobs: Sequence[JobStatus]) -> str:
    """Return how the jobs of a folder that are not done go on.

    A failed job fails again, unless what its error names has changed. One that could not begin keeps all its settings.
    """
    command = f"continue with: evorun resume {shlex.quote(folder)}"
    if all(job.begun for job in jobs):
        failed = any(job.state == "failed" and job.error for job in jobs)
        return f"mend what the error names, then {command}" if failed else command
    return f"mend what the error names, then {command}; a job with other settings needs a command of its own"


def status_line(job: JobStatus) -> str:
    """Return the state of a job in a line."""
    spent = ((job.calls, "calls"), (job.tool_calls, "tool calls"), (job.tokens, "tokens"))
    cost = [f"{number:,} {unit}" for number, unit in spent if number]
    return ", ".join([f"{job.name}: {job.state}", *_progress(job), *cost, *(f"{left} left" for left in _left(job))])


def _progress(job: JobStatus) -> list[str]:
    """Return how far a job is, in one text; in none where that is not known."""
    if job.share is not None and job.state not in _ENDED_WELL:
        return [f"{100 * job.share:.0f} %"]
    if job.done is None or (job.planned is None and not job.done and job.unit == "problems"):
        return []
    if job.unit == "steps":
        return [f"step {job.done:,}" if job.planned is None else f"step {job.done:,}/{job.planned:,}"]
    return [f"{job.done:,}" if job.planned is None else f"{job.done:,}/{job.planned:,}"]


def _in_slurm(job: JobStatus) -> str:
    state, space, reason = (job.scheduler_state or "").partition(" ")
    return f"{state.lower()}{space}{reason}"


def _left(job: JobStatus) -> list[str]:
    return [] if job.left_seconds is None else [format_clock(job.left_seconds)]


def _score(job: JobStatus, *, named: bool) -> str:
    if job.value is None:
        return ""
    shown = value(_as_score(job), job.value)
    return f"{name_score(_as_score(job))} {shown}" if named else shown


def _interval(job: JobStatus) -> str:
    return "" if job.ci95 is None else value_interval(_as_score(job), job.ci95)


def _as_score(job: JobStatus) -> Score:
    return Score(job.score or "", job.scale_low, job.scale_high, rate=job.rate, label=job.score_label)


def _cost(number: float | None) -> str:
    return "" if number is None else compact(number)


def _price(price: float | None) -> str:
    return "" if price is None else format_dollars(price)

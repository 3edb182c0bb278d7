"""A table of jobs: how far each is, its score and its cost."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from evorun.runs.job_states import JobStatus, State
from evorun.runs.progress import format_clock

ORDER: tuple[State, ...] = ("running", "failed", "lost", "interrupted", "waiting", "done")
"""States as `--watch` sorts them, since a screen may have no place for all jobs."""

_STYLES = {"failed": "bold red", "lost": "bold red", "interrupted": "yellow", "running": "bold", "waiting": "dim"}


def status_table(jobs: Sequence[JobStatus], title: str) -> Table:
    """Return the table; a column that no job has anything for is left out."""
    names = list(dict.fromkeys(job.score for job in jobs if job.score is not None))
    columns: list[tuple[str, list[str]]] = [
        ("job", [job.name for job in jobs]),
        ("id", [job.scheduler_id or "" for job in jobs]),
        ("state", [job.state for job in jobs]),
        ("progress", ["" if job.state == "done" else ", ".join([*_progress(job), *_left(job)]) for job in jobs]),
        (names[0] if len(names) == 1 else "score", [_score(job, named=len(names) > 1) for job in jobs]),
        ("95 % interval", [_interval(job) for job in jobs]),
        ("calls", [_short(job.calls) for job in jobs]),
        ("tokens", [_short(job.tokens) for job in jobs]),
        ("GPU s", [_count(job.gpu_seconds) for job in jobs]),
    ]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    shown = [(heading, cells) for heading, cells in columns if any(cells)]
    for heading, _ in shown:
        table.add_column(heading, justify="left" if heading in ("job", "id", "state") else "right")
    for job, *cells in zip(jobs, *(cells for _, cells in shown), strict=True):
        table.add_row(*cells, style=_STYLES.get(job.state))
    return table


def count_states(jobs: Sequence[JobStatus]) -> str:
    """Return how many jobs are in which state: `12 jobs: 9 done, 3 running`."""
    counts = Counter(job.state for job in jobs)
    states = ", ".join(f"{counts[state]:,} {state}" for state in reversed(ORDER) if counts[state])
    return f"{len(jobs):,} job{'' if len(jobs) == 1 else 's'}: {states}"


def list_notes(jobs: Sequence[JobStatus]) -> list[str]:
    """Return a line for each job whose state has a reason, or leaves something open."""
    words = ((job, job.error or job.note) for job in jobs)
    return [f"{job.state}: {job.name}: {' '.join(said.split())}" for job, said in words if said]


def status_line(job: JobStatus) -> str:
    """Return the state of a job in a line."""
    cost = [f"{number:,} {unit}" for number, unit in ((job.calls, "calls"), (job.tokens, "tokens")) if number]
    return ", ".join([f"{job.name}: {job.state}", *_progress(job), *cost, *(f"{left} left" for left in _left(job))])


def _progress(job: JobStatus) -> list[str]:
    """Return how far a job is, in one text; in none where that is not known."""
    if job.share is not None and job.state != "done":
        return [f"{100 * job.share:.0f} %"]
    if job.done is None or (job.planned is None and not job.done):
        return []
    return [f"{job.done:,}" if job.planned is None else f"{job.done:,}/{job.planned:,}"]


def _left(job: JobStatus) -> list[str]:
    return [] if job.left_seconds is None else [format_clock(job.left_seconds)]


def _score(job: JobStatus, *, named: bool) -> str:
    if job.value is None:
        return ""
    return f"{job.score} {_figure(job, job.value)}" if named else _figure(job, job.value)


def _interval(job: JobStatus) -> str:
    if job.ci95 is None:
        return ""
    low, high = job.ci95
    return f"{100 * low:.1f} to {100 * high:.1f} %" if job.rate else f"{low:.4g} to {high:.4g}"


def _figure(job: JobStatus, value: float) -> str:
    return f"{100 * value:.1f} %" if job.rate else f"{value:.4g}"


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _short(number: int | None) -> str:
    """Return a count in at most seven characters: a terminal of 80 columns has no place for the digits of millions."""
    if number is None or number < 100_000:
        return _count(number)
    return f"{number / 1e3:,.0f} k" if number < 10_000_000 else f"{number / 1e6:,.0f} M"

"""A table of jobs: how far each is, its score and its cost."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from evorun.runs.job_states import JobStatus

_STYLES = {"failed": "bold red", "lost": "bold red", "interrupted": "yellow", "running": "bold", "waiting": "dim"}


def status_table(jobs: Sequence[JobStatus], title: str) -> Table:
    """Return the table; a column that no job has anything for is left out."""
    names = list(dict.fromkeys(job.score for job in jobs if job.score is not None))
    columns = {
        "job": [job.name for job in jobs],
        "state": [job.state for job in jobs],
        "progress": [_progress(job) for job in jobs],
        names[0] if len(names) == 1 else "score": [_score(job, named=len(names) > 1) for job in jobs],
        "95 % interval": [_interval(job) for job in jobs],
        "calls": [_count(job.calls) for job in jobs],
        "tokens": [_count(job.tokens) for job in jobs],
        "GPU s": [_count(job.gpu_seconds) for job in jobs],
        "note": [job.error or job.note or "" for job in jobs],
    }
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    for heading in shown:
        table.add_column(heading, justify="left" if heading in ("job", "state", "note") else "right")
    for job, cells in zip(jobs, zip(*shown.values(), strict=True), strict=True):
        table.add_row(*cells, style=_STYLES.get(job.state))
    return table


def _progress(job: JobStatus) -> str:
    if job.done is None or (job.planned is None and not job.done):
        return ""
    return f"{job.done:,}" if job.planned is None else f"{job.done:,}/{job.planned:,}"


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

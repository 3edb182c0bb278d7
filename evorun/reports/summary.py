"""The end of a run in the terminal: accuracy by stratum, cost by role, and where the report is."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports.banners import banners
from evorun.reports.overview import Outcome, load_outcome
from evorun.reports.records import Metric
from evorun.reports.text import MISSING, cost_row, count, duration, interval, number, percent, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_summary(run_dir: Path, console: "Console") -> None:
    """Print the tables of one run. Raises RunDirectoryError or DataError."""
    from rich.text import Text

    outcome = load_outcome(run_dir)
    for line in banners(outcome):
        console.print(Text(line, style="bold yellow"))
    console.print(_accuracy_table(outcome))
    if outcome.cost:
        console.print(_cost_table(outcome))
    others = _other_metrics(outcome.metrics)
    if others:
        console.print(Text(others))
    report = run_dir / "report.html"
    path = Text(str(report)) if report.exists() else Text(f"none yet: evorun report {run_dir}")
    console.print(Text("Report: ").append(path), soft_wrap=True)


def _accuracy_table(outcome: Outcome) -> "Table":
    manifest = outcome.manifest
    rows = [(stratum, metrics.get("accuracy")) for stratum, metrics in outcome.by_stratum.items()]
    overall = outcome.metrics.get("accuracy")
    table = _table(f"{manifest.method} on {manifest.task}", "stratum", "accuracy", "95 % interval", "n")
    for name, metric in rows:
        _add_row(table, printable(name), *_metric_cells(metric))
    table.add_section()
    _add_row(table, "all" if outcome.finished else "all so far", *_metric_cells(overall))
    return table


def _metric_cells(metric: Metric | None) -> tuple[str, str, str]:
    if metric is None:
        return MISSING, MISSING, "0"
    return percent(metric.value), interval(metric.ci95), count(metric.n)


def _cost_table(outcome: Outcome) -> "Table":
    took = f" ({duration(outcome.manifest.seconds)})" if outcome.manifest.seconds is not None else ""
    table = _table(f"cost{took}", "role", "calls", "prompt tokens", "completion tokens", "model time")
    for role, spent in outcome.cost.items():
        if role == "total":
            table.add_section()
        _add_row(table, *cost_row(role, spent))
    return table


def _other_metrics(metrics: Mapping[str, Metric]) -> str:
    others = {name: metric for name, metric in metrics.items() if name != "accuracy"}
    return "  ".join(f"{printable(name)} {number(metric.value)}" for name, metric in others.items())


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _add_row(table: "Table", *cells: str) -> None:
    from rich.text import Text

    # Text, not str: a stratum's name must not be read as console markup.
    table.add_row(*(Text(cell) for cell in cells))

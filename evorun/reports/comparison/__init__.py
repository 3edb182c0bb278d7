"""Comparisons of several runs: tables, pairs on the same problems, curves. Reads run directories only."""

from evorun.reports.comparison.comparison import ComparedRuns, compare
from evorun.reports.comparison.names import read_names
from evorun.reports.comparison.output import (
    COMPARISON,
    choose_folder,
    export_comparison,
    print_comparison,
    refuse_losing_runs,
    render_comparison,
    write_comparison,
)
from evorun.reports.comparison.tables import ARMS

__all__ = [
    "ARMS",
    "COMPARISON",
    "ComparedRuns",
    "choose_folder",
    "compare",
    "export_comparison",
    "print_comparison",
    "read_names",
    "refuse_losing_runs",
    "render_comparison",
    "write_comparison",
]

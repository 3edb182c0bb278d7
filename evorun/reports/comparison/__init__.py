"""Several runs beside one another: a table, pairs on the same problems, curves. Reads run directories only."""

from evorun.reports.comparison.comparison import Comparison, compare
from evorun.reports.comparison.output import (
    COMPARISON,
    comparison_folder,
    export_comparison,
    print_comparison,
    write_comparison,
)

__all__ = [
    "COMPARISON",
    "Comparison",
    "compare",
    "comparison_folder",
    "export_comparison",
    "print_comparison",
    "write_comparison",
]

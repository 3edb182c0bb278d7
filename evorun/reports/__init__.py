"""Reports of run directories: the terminal summary, report.html, comparisons. Reads run directories only."""

from evorun.reports.html import write_report
from evorun.reports.summary import print_summary

__all__ = ["print_summary", "write_report"]

"""Summaries of bills of the US Congress and of California: BillSum (MPO, section 3.3.1)."""

from evorun.tasks.billsum.config import BillSumConfig

__all__ = ["BillSumConfig"]

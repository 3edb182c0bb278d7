"""Summaries of bills of the US Congress and of California: BillSum (MPO, section 3.3.1)."""

"""Conformance suites for methods, tasks and engines, including those of plug-ins.

Each suite is a plain function. It raises AssertionError if the method, task or engine breaks a rule that evorun relies
on; the message says what was expected. None needs a test runner.
"""

from evorun.testing.engines import check_engine
from evorun.testing.methods import check_method
from evorun.testing.tasks import check_task

__all__ = ["check_engine", "check_method", "check_task"]

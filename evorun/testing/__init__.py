"""Conformance suites for methods, tasks and engines, those of plug-ins too.

Each is a plain function that raises AssertionError, with a message that says what was expected, for a method, task or
engine that breaks a rule that evorun relies on. None needs a test runner.
"""

from evorun.testing.engines import check_engine
from evorun.testing.methods import check_method
from evorun.testing.tasks import check_task

__all__ = ["check_engine", "check_method", "check_task"]

"""Conformance suites for methods, tasks, graders, rewards, engines, judges and trackers, including those of plug-ins.

Each suite is a plain function. It raises AssertionError if what it checks breaks a rule that evorun relies
on; the message says what was expected. None needs a test runner.
"""

from evorun.testing.engines import check_engine
from evorun.testing.graders import check_grader
from evorun.testing.judges import check_judge
from evorun.testing.methods import check_method
from evorun.testing.rewards import check_reward
from evorun.testing.tasks import check_task
from evorun.testing.trackers import check_tracker

__all__ = ["check_engine", "check_grader", "check_judge", "check_method", "check_reward", "check_task", "check_tracker"]

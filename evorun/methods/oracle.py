"""The oracle of methods that let a task's symbolic system score candidates during the search."""

from evorun.methods.base import Regime
from evorun.tasks.base import Task
from evorun.tasks.capabilities import GivesFeedback, Verifies


def regime_with_verifier(task: type[Task]) -> Regime:
    """Return the regime of a method that uses the task's verifier: public tests are known to everybody."""
    return "public_tests" if issubclass(task, GivesFeedback) else "oracle"


def lacking_verifier(task: type[Task], instead: str) -> str | None:
    """Return one line when the task has no verifier, with what to set instead."""
    if issubclass(task, Verifies):
        return None
    return f"task={task.name} has no symbolic system that scores answers; set {instead}"

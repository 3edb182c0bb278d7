"""Graders of rows by name: evorun's own, and those of installed packages (entry points in the group `evorun.graders`).

A grader is a subclass of `Rows`: it reads answers, compares them with an accepted one, and declares its scores.
"""

from collections.abc import Mapping

from evorun.errors import ConfigError
from evorun.plugins import INSTALL, advise_package, find_plugins, load_plugin
from evorun.runs.scores import Score
from evorun.tasks.rows.answers import ChoiceRows, MathRows, NumberRows, Rows, TextRows
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

GRADERS: Mapping[str, type[TextTask]] = {
    "exact": Rows,
    "number": NumberRows,
    "math": MathRows,
    "choice": ChoiceRows,
    "rouge": TextRows,
}
"""evorun's own; each has its simulated model as `simulator`."""


def find_grader(name: str) -> type[TextTask]:
    """Return a grader; the class of its simulated model is its `simulator`.

    Raises ConfigError for an unknown name, PluginError for a plug-in that cannot be used.
    """
    if name in GRADERS:
        return GRADERS[name]
    offered = find_plugins("grader", GRADERS)
    if name not in offered:
        if ":" in name:
            raise ConfigError(f"task.grader: expected the name of one, got '{name}'; {advise_package('grader')}")
        expected = ", ".join(sorted({*GRADERS, *offered}))
        raise ConfigError(f"task.grader: expected one of {expected}, got '{name}'; {INSTALL}")
    return load_plugin("grader", offered[name], Rows, _check)


def _check(grader: type[Rows]) -> None:
    if not grader.scores or not all(isinstance(score, Score) for score in grader.scores):
        raise TypeError(f"expected scores (evorun.runs.scores.Score), the primary one first, got {grader.scores!r:.60}")
    if not (isinstance(grader.simulator, type) and issubclass(grader.simulator, TextSimulator)):
        raise TypeError(f"simulator: expected a subclass of TextSimulator, got {grader.simulator!r:.60}")

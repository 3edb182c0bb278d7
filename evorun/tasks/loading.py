"""Makes a loaded task from problems and what is known of them, with a default grader, simulator and splits."""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.simulation.simulator import TaskSimulator
from evorun.tasks.base import Demonstration, Grade, Grader, LoadedTask, Problem, Provenance, Row, Tools, look_up
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask


class GoldGrader:
    """Scores responses with the task, given the references, which nothing else holds."""

    def __init__(self, task: TextTask, references: Mapping[str, Sequence[Any]]) -> None:
        """references: by problem id, several where any of them will do; empty where the task scores without one."""
        self._task = task
        self._references = references

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; of several references the best match counts. Raises DataError for an unknown problem."""
        grades = [self._task.score(problem, response, known) for known in self.references(problem) or (None,)]
        return max(grades, key=self._quality) if len(grades) > 1 else grades[0]

    def references(self, problem: Problem) -> Sequence[Any]:
        """Return a problem's references. Raises DataError for an unknown problem."""
        return look_up(self._references, problem)

    def _quality(self, grade: Grade) -> list[float]:
        values = ((score, score.value_in(grade)) for score in self._task.scores)
        return [-math.inf if value is None else score.utility(value) for score, value in values]


Rows = Sequence[Row | tuple[Problem, str | None] | tuple[Problem, str | None, Any]]
"""Rows, or tuples of their parts."""


def load_rows(
    task: TextTask,
    rows: Rows,
    *,
    validation: Rows = (),
    training: Rows = (),
    source: Literal["own", "generated", "benchmark"] = "own",
    provenance: Provenance | None = None,
    grader: Grader | None = None,
    simulator: Callable[[TextTask, Sequence[Row]], TaskSimulator] = TextSimulator,
) -> LoadedTask:
    """Return the loaded task, with `rows` as its problems.

    validation: for demonstrations and the choice of prompts. training: to train weights on; if empty, training uses the
    validation rows. source: what reports call the problems: the task's own, drawn by `draw_seed` (`generated`), or a
    benchmark's. provenance: None: this source, under the task's name. grader: None: the task's own `score`. Raises
    DataError without rows, ConfigError for an unusable prompt file.
    """
    if not rows:
        raise DataError(f"task={task.name}: expected at least one problem, got none")
    tested, held_out, trained = ([Row(*row) for row in part] for part in (rows, validation, training))
    # A single grader for all splits: methods that train or choose prompts also grade held-out problems.
    known = {row.problem.id: row for row in (*tested, *held_out, *trained)}
    if len(known) < len(tested) + len(held_out) + len(trained):
        raise DataError(f"task={task.name}: expected distinct ids over all splits together")
    # Here, where a problem is known, so that a bad prompt file is refused before any model loads.
    task.try_prompts(tested[0].problem, tested[0].answer)
    return LoadedTask(
        task=task,
        problems=tuple(row.problem for row in tested),
        grader=grader
        or GoldGrader(task, {name: () if row.truth is None else (row.truth,) for name, row in known.items()}),
        simulator=simulator(task, list(known.values())),
        provenance=provenance
        or Provenance(source=source, description=task.name, digest=sha256(msgspec.json.encode(tested)).hexdigest()),
        validation=tuple(Demonstration(problem=row.problem, answer=row.answer or "") for row in held_out),
        training=tuple(row.problem for row in trained),
        answers={name: row.answer for name, row in known.items() if row.answer is not None},
    )

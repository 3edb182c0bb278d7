"""The simulated model of problems of construction: its programs return objects from a ladder, from poor to good."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from evorun.models.base import Request
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Problem, Row
from evorun.tasks.patches import write_patch
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

VARIANTS = 4
"""Programs with the same object, which differ in length."""
RUNGS = 24
"""Objects of a ladder that is climbed step by step (ours)."""
_NOTE = "# The values were found by a search that moved one of them at a time.\n"


def write_program(built: Any, variant: int) -> str:
    """Return a program that builds an object. variant: number of lines of comment."""
    values = json.dumps(built, separators=(", ", ": "))
    return f"{_NOTE * variant}BUILT = {values}\n\n\ndef build(*arguments):\n    return BUILT"


class LadderSimulator(TextSimulator):
    """Writes programs that return objects of the task's ladder; of other programs it knows nothing.

    Where changes are asked for (the hint `patch`, with the parent), it gives them as a patch.
    """

    filler: ClassVar[Filler] = Filler(
        "Look at what limits the score, move what is nearest to the limit and keep the move where the score gains."
    )
    malformed: ClassVar[Sequence[str]] = (
        "I would begin with a regular arrangement and then move one part at a time.",
        "A better program needs more computing time.",
        "",
    )
    verdict_reason: ClassVar[str] = "Its object is better."

    def __init__(self, task: TextTask, rows: Sequence[Row]) -> None:
        super().__init__(task, rows)
        self._known: dict[str, Mapping[str, float]] = {}

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        text, parent = super().respond(request, rng), request.hints.get("patch")
        if parent is None:
            return text
        program = self._task.parse(self._rows[request.hints["problem"]].problem, text).answer
        if program is None:
            return text
        idea, *_ = text.partition("```")
        return f"{idea}{write_patch(parent, program)}"

    def value(self, problem: Problem, answer: str | None) -> float:
        task: Any = self._task
        if problem.id not in self._known:
            ladder = task.make_ladder(problem)
            degrees = [task.degree(problem, task.measure(problem, built)) for built in ladder]
            self._known[problem.id] = {
                write_program(built, variant): degree
                for built, degree in zip(ladder, degrees, strict=True)
                for variant in range(VARIANTS)
            }
        # Programs of others, such as the seed, are worth half: neither praised nor blamed.
        return 0.0 if answer is None else self._known[problem.id].get(answer, 0.5)

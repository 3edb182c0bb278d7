"""The model that answers at random in the task's format (`model=random`): the lower bound for every method."""

from collections.abc import Sequence

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.simulation.reflection import reflect
from evorun.simulation.reviewing import META_ROLES, points, refine_rubric
from evorun.simulation.settings import World
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Problem, Row
from evorun.tasks.text_task import TextTask

_FILLER = Filler("It may be this or that and one is as good as another to me.")
_WORDS = 30
_MAX_DRAWS = 50
"""Maximum answers to other problems that are drawn in search of a readable one."""
_BLIND = World(reflection_skill=0, meta_skill=0, malformed=0)
"""Its reflections and its reviews of rubrics know nothing either."""


class RandomSimulator:
    """Draws answers uniformly, whether from scratch or in view of others; judges by tossing a coin.

    It does not use the right answer: the task draws one without knowing it (`TextTask.random_answer`). If the task
    cannot, the answer is the right one to another problem.
    """

    def __init__(self, task: TextTask, rows: Sequence[Row], no_errors: str) -> None:
        """rows: problems with their right answers. no_errors: an error detector's reply that names none."""
        self._task = task
        self._rows = rows
        self._problems = {row.problem.id: row.problem for row in rows}
        self.no_errors = no_errors

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return a reply in the format of the request's role."""
        role = request.hints["role"]
        if role in META_ROLES:
            return refine_rubric(_BLIND, request, rng)
        if "problem" not in request.hints:
            return reflect(_BLIND, request, rng)
        if role == "judge":
            return _json(reasoning="A coin was tossed.", solution="AB"[int(rng.integers(2))])
        if role == "rate":
            rating_a, rating_b = rng.integers(1, 11, 2).tolist()
            return _json(reasoning="Two dice were rolled.", rating_a=rating_a, rating_b=rating_b)
        if role == "score":
            return points(rng.random(), request)
        if role == "plan":
            return _FILLER.text(_WORDS).strip()
        if role == "fitness":
            return _json(reasoning="A number was drawn.", score=round(100 * rng.random(), 1))
        if role == "errors":
            return self.no_errors
        problem = self._problems[request.hints["problem"]]
        answer = self._task.random_answer(problem, rng) or self._draw_other_answer(problem, rng)
        return _FILLER.text(_WORDS).strip() if answer is None else self._task.write(problem, answer)

    def _draw_other_answer(self, problem: Problem, rng: np.random.Generator) -> str | None:
        """Return a right answer to a random other problem, one that the task reads as an answer to this one.

        After `_MAX_DRAWS` unreadable ones, return the last of them; None where there is none.
        """
        others = sorted({row.answer for row in self._rows if row.problem.id != problem.id and row.answer is not None})
        answer = None
        for _ in range(_MAX_DRAWS if others else 0):
            answer = others[int(rng.integers(len(others)))]
            if self._task.parse(problem, self._task.write(problem, answer)).answer is not None:
                break
        return answer


def _json(**reply: object) -> str:
    return msgspec.json.encode(reply).decode()

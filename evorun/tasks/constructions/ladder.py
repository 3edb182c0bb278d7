"""The simulated model of problems of construction: its programs return objects from a ladder, from poor to good."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evorun.models.base import Request
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Problem, Row
from evorun.tasks.patches import write_patch
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

RUNGS = 101
"""Objects of a ladder that is climbed step by step (ours)."""
PARTS = 100
"""Parts of an object that are right or wrong (ours): so many that in hundreds of responses some are always wrong."""
LOWEST = 0.9
"""Score of a ladder's lowest object, as a share of the seed program's (ours)."""
_SEARCHES = 1000
"""Programs with the same object."""
_MAX_NOTES = 4
_BUILT = "BUILT = "


def write_program(built: Any, search: int) -> str:
    """Return a program that builds an object. search: a number that its comment names, of one to four lines."""
    note = f"# Search {search} found the values; it moved one of them at a time.\n" * (1 + search % _MAX_NOTES)
    values = json.dumps(built, separators=(", ", ": "))
    return f"{note}{_BUILT}{values}\n\n\ndef build(*arguments):\n    return BUILT"


def _drop_comment(program: str) -> str:
    return program[program.find(_BUILT) :]


def even_scores(start: float, best: float) -> list[float]:
    """Return the scores of a ladder's rungs at even distances. start: positive score of the seed program."""
    scores: list[float] = np.linspace(min(LOWEST * start, best), best, RUNGS).tolist()
    return scores


class Ladder(NamedTuple):
    """Objects from poor to good, with their degrees, and these by the text of a program without its comment."""

    objects: Sequence[Any]
    degrees: Sequence[float]
    by_program: Mapping[str, float]

    def height(self, degree: float) -> float:
        """Return how far a degree is on the way from the lowest object's to the highest's, in [0, 1]."""
        lowest, highest = self.degrees[0], self.degrees[-1]
        return min(1.0, max(0.0, (degree - lowest) / (highest - lowest)))

    def reach(self, height: float) -> Any:
        """Return the highest object that is not above a height, or the lowest object."""
        lowest, highest = self.degrees[0], self.degrees[-1]
        return self.objects[max(0, bisect_right(self.degrees, lowest + height * (highest - lowest)) - 1)]


class LadderSimulator(TextSimulator):
    """Writes programs that return objects of the task's ladder; it takes other programs to be as good as the seed.

    An object is as high on the ladder as the share of its parts that are right. In view of others a response copies
    parts of them (`Skill.part_chances`). Where changes are asked for (the hint `patch`, with the parent), it copies
    parts of the parent alone, and gives the changes as a patch.
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
    adds_improvement: ClassVar[bool] = False

    def __init__(self, task: TextTask, rows: Sequence[Row]) -> None:
        super().__init__(task, rows)
        self._ladders: dict[str, Ladder] = {}

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        text, parent = super().respond(request, rng), request.hints.get("patch")
        if parent is None:
            return text
        program = self._task.parse(self._rows[request.hints["problem"]].problem, text).answer
        if program is None:
            return text
        idea, *_ = text.partition("```")
        return f"{idea}{write_patch(parent, program)}"

    def graded_attempt(
        self, request: Request, shown: Sequence[float], luck: float, steps: str, rng: np.random.Generator
    ) -> str:
        problem = self._rows[request.hints["problem"]].problem
        if request.hints.get("patch") is not None:
            shown = shown[:1]  # the parent
        right_in_view = round(PARTS * sum(shown) / len(shown)) if shown else 0
        kept, gained = self._skill.part_chances(request, shown)
        right = int(rng.binomial(right_in_view, kept)) + int(rng.binomial(PARTS - right_in_view, gained))
        built = self._ladder(problem).reach((right + 0.5) / PARTS)  # half a part: scores are rounded
        return self.reply(problem, write_program(built, int(luck * _SEARCHES)), steps)

    def degree(self, problem: Problem, answer: str | None) -> float:
        """Return how high an answer is, from 0 (the ladder's lowest object, or none) to 1 (its highest)."""
        return self._ladder(problem).height(self.value(problem, answer))

    def value(self, problem: Problem, answer: str | None) -> float:
        task: Any = self._task
        unknown = task.seed_degree(problem)
        return 0.0 if answer is None else self._ladder(problem).by_program.get(_drop_comment(answer), unknown)

    def find_lack_of_skill(self, problems: Sequence[Problem]) -> str | None:
        """Return None: how good a random object is, only its grader knows."""
        return None

    def _has_several_answers(self, problem: Problem) -> bool:
        return True

    def _ladder(self, problem: Problem) -> Ladder:
        if problem.id not in self._ladders:
            task: Any = self._task
            objects = task.make_ladder(problem)
            degrees = [task.degree(problem, task.measure(problem, built)) for built in objects]
            programs = [_drop_comment(write_program(built, 0)) for built in objects]
            self._ladders[problem.id] = Ladder(objects, degrees, dict(zip(programs, degrees, strict=True)))
        return self._ladders[problem.id]

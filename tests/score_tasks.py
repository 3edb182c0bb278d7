"""Tasks without right and wrong, as a plug-in: one in [0, 10] where more is better, one unbounded where less is."""

from dataclasses import dataclass
from typing import Any

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, LoadedTask, Problem, TaskConfig
from evorun.tasks.loading import Row, load_rows
from evorun.tasks.text_task import TextTask

OUT_OF_SIGHT = 500
"""An answer beyond it cannot be scored."""


class Aim(TextTask):
    """Name a number near one that nobody tells."""

    name = "aim"
    scores = (Score("quality", 0, 10), Score("digits", 0, higher_is_better=False))
    answer_format = "End with #### NUMBER."

    def question(self, problem: Problem) -> str:
        return f"Which number do I think of? {problem.data['hint']}"

    def read(self, problem: Problem, text: str) -> str:
        found = text.rpartition("####")[2].strip()
        if not found.isdecimal():
            raise ValueError("no_number: expected #### NUMBER")
        return found

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning}\n#### {answer}".lstrip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        if response.answer is None:
            return Grade(scores={"quality": 0.0, "digits": 10.0})
        if int(response.answer) > OUT_OF_SIGHT:
            return Grade(detail="out of sight")
        return Grade(scores={"quality": max(0.0, 10 - off(response, reference)), "digits": float(len(response.answer))})


class AimError(Aim):
    """The same, by its distance."""

    name = "aim_error"
    scores = (Score("error", 0, higher_is_better=False),)
    strata = ("odd", "even")

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"error": 99.0 if response.answer is None else off(response, reference)})


def off(response: Response, gold: str | None) -> float:
    return float(abs(int(response.answer or 0) - int(gold or 0)))


@dataclass
class AimConfig(TaskConfig):
    task_class = Aim
    name: str = "aim"
    description: str = "a number near one that nobody tells"
    problems: int = 8

    def load(self) -> LoadedTask:
        made = [_row(f"a{n}", n, ("odd", "even")[n % 2 == 0]) for n in range(self.problems)]
        held = [_row(f"v{n}", n + 1, "even") for n in range(4)]
        task = self.task_class()
        assert isinstance(task, TextTask)
        return load_rows(task, made, validation=held)


@dataclass
class AimErrorConfig(AimConfig):
    task_class = AimError
    name: str = "aim_error"


def _row(name: str, n: int, stratum: str) -> Row:
    return Problem(id=name, stratum=stratum, data={"hint": f"hint {n}"}), str(3 * n + 1)

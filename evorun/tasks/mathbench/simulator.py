"""The model of simulated runs of MathBench: what it writes, and which mistakes it makes."""

from collections.abc import Sequence
from typing import ClassVar

from evorun.models.simulator import Filler
from evorun.tasks.base import Problem
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import letters
from evorun.tasks.simulator import TextSimulator


class MathBenchSimulator(TextSimulator):
    """Errs by one of the other letters."""

    filler: ClassVar[Filler] = Filler(
        "Write down what is given, set up the relation it asks for, compute one step and check it against the options."
    )
    malformed: ClassVar[Sequence[str]] = (
        '{"reasoning": "Write down what is given, set up',
        "I would compare the options one by one and see which of them fits.",
        '{"reasoning": "None of them fits.", "solution": "E"}',
        '{"reasoning": "Two of them fit.", "solution": "A or B"}',
        "",
    )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return letters(OPTIONS).replace(gold, "")

    def reply(self, problem: Problem, answer: str, steps: str) -> str:
        return self._task.write(problem, answer, f"{steps}So the answer is {answer}.")

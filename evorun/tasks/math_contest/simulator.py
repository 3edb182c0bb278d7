"""The model of simulated runs of a contest: what it writes, and which mistakes it makes."""

from collections.abc import Sequence
from typing import ClassVar

from evorun.models.simulator import Filler
from evorun.tasks.base import Problem
from evorun.tasks.math_contest.reading import read_integer
from evorun.tasks.math_contest.task import MathContest
from evorun.tasks.simulator import TextSimulator

# Wrong answers of a problem
_MISTAKES = 40


class ContestSimulator(TextSimulator):
    """Errs by integers near the right one, or by small ones where that is no integer."""

    _task: MathContest
    filler: ClassVar[Filler] = Filler(
        "Name the unknowns, write down what ties them together, try a small case, and see what carries over to the "
        "next."
    )
    malformed: ClassVar[Sequence[str]] = (
        "Name the unknowns, write down what ties them together, and then",
        "So the answer is \\boxed{",
        "The answer must be large, which leaves several cases open.",
        "Therefore it is \\boxed{}.",
        "",
    )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        value, largest = read_integer(gold), self._task.largest
        if value is None:
            return [str(number) for number in range(2, 2 + _MISTAKES)]
        near = range(value + 1, value + 1 + _MISTAKES)
        return [str(number if largest is None else number % (largest + 1)) for number in near]

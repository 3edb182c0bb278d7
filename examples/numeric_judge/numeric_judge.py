"""A judge by code: the answer that is nearer to the numbers of the question wins."""

import re
from dataclasses import dataclass

from evorun.fields import NonNegativeFloat
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Judgment
from evorun.tasks.judges import JudgeConfig

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class NumericJudge:
    """Prefers the answer whose number is nearer to the sum of the numbers that the problem shows."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        shown = " ".join(value for value in problem.data.values() if isinstance(value, str))
        aim = sum(map(float, NUMBER.findall(shown)))
        left, right = (_distance(answer, aim) for answer in (first, second))
        reason = f"{left:g} and {right:g} away from {aim:g}."
        if abs(left - right) <= self._tolerance or left == right:
            return Judgment(verdict="T", reason=reason)
        return Judgment(verdict="A" if left < right else "B", reason=reason)

    async def close(self) -> None:
        """Hold nothing, so release nothing."""


def _distance(answer: str | None, aim: float) -> float:
    """Return how far an answer's last number is from the aim; infinity without one."""
    found = NUMBER.findall(answer or "")
    return abs(float(found[-1]) - aim) if found else float("inf")


@dataclass
class NumericJudgeConfig(JudgeConfig):
    """The settings of `judge=numeric`."""

    name: str = "numeric"
    tolerance: NonNegativeFloat = 0.0
    """Distances that differ by no more are a tie."""

    def make(self) -> NumericJudge:
        return NumericJudge(self.tolerance)

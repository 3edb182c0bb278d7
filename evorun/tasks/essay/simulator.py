"""The model of simulated runs of the task: a writer without a right answer, whose judges see how good a text is."""

from evorun.models.writing import traits
from evorun.tasks.base import Problem
from evorun.tasks.simulator import TextSimulator


class EssaySimulator(TextSimulator):
    """Compares essays by the share of their sentences that are to the point."""

    def value(self, problem: Problem, answer: str | None) -> float:
        return traits(answer or "").quality

"""The model of simulated runs of the task: its summaries are beginnings of the reference."""

from collections.abc import Sequence
from typing import ClassVar

from evorun.models.simulator import Filler
from evorun.tasks.base import Problem
from evorun.tasks.search_qa.metrics import f1
from evorun.tasks.simulator import TextSimulator

# Wrong answers of a problem: as many eighths of the reference
_EIGHTHS = range(1, 8)


class BillSumSimulator(TextSimulator):
    """Writes the reference, or a part of it; judges by the words that a summary has in common with it."""

    filler: ClassVar[Filler] = Filler(
        "Requires the agency to report on the matter within the year and to make the report known to the public."
    )
    malformed: ClassVar[Sequence[str]] = ("", "<think>The bill begins with its findings.")

    def value(self, problem: Problem, answer: str | None) -> float:
        """Return the overlap of words with the reference: ROUGE would take a thirtieth of a second."""
        _, reference = self._rows[problem.id]
        return f1(answer or "", reference or "")

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        words = gold.split()
        return [" ".join(words[: max(1, len(words) * eighths // 8)]) for eighths in _EIGHTHS]

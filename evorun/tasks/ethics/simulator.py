"""The model of simulated runs of the task: its mistake is the other verdict."""

from collections.abc import Sequence
from typing import ClassVar

from evorun.models.simulator import Filler
from evorun.tasks.base import Problem
from evorun.tasks.ethics.reading import VERDICTS
from evorun.tasks.simulator import TextSimulator


class EthicsSimulator(TextSimulator):
    """Gives reasons without content, and now and then no verdict, two of them, or neither of the two."""

    filler: ClassVar[Filler] = Filler(
        "The one who tells it had a promise to keep, the other had reason to expect it, and what it cost was small."
    )
    malformed: ClassVar[Sequence[str]] = (
        "It depends on how one sees it.",
        "<verdict>RIGHT</verdict> for one and <verdict>WRONG</verdict> for the other.",
        "<verdict>BOTH</verdict>",
        "",
    )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return [verdict for verdict in VERDICTS if verdict != gold]

"""The model of simulated runs: it searches before it answers, now and then with a call that cannot be carried out."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import Filler
from evorun.tasks.search_qa.reading import CLOSING, OPENING
from evorun.tasks.simulator import REVIEWS, TextSimulator


class SearchSimulator(TextSimulator):
    """Searches once or twice, always the same for a question, and answers by its skill, whatever was found."""

    filler: ClassVar[Filler] = Filler("The passages name what was asked for and bear out the date and the place.")
    malformed: ClassVar[Sequence[str]] = ("The passages do not say.", "Answer:", f"{OPENING} one more search", "")

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        role = request.hints["role"]
        if "problem" in request.hints and role not in REVIEWS:
            problem, _ = self._rows[request.hints["problem"]]
            searched = sum(message["role"] == "tool" for message in request.messages)
            if searched < 1 + len(problem.id) % 2:
                if rng.random() < self._skill.malformed:
                    return f"{OPENING} {self._task.question(problem)}"
                return search_call(self._task.question(problem), searched)
        return super().respond(request, rng)


def search_call(question: str, searched: int) -> str:
    """Return a turn that searches for the question, or later on for parts of it."""
    words = question.split()
    queries = [question[:200]] if not searched else [" ".join(words[:4]), " ".join(words[-4:])]
    call = msgspec.json.encode({"name": "search", "arguments": {"query_list": queries}}).decode()
    return f"I look it up.\n{OPENING}{call}{CLOSING}"

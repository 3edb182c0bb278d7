"""Summaries of bills as methods see it: the bill's text, and a summary that is compared with a reference by ROUGE."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.prose.task import PROMPTS, Prose

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeLsum_sentences")


class BillSum(Prose):
    """Answers the text of a bill with a summary."""

    name = "billsum"
    scores = tuple(Score(name, 0, 1) for name in MEASURES)
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    words: Mapping[str, str] = {
        "persona": "an experienced officer of a legislature's research service",
        "subject": "bill",
        "source": "Bill",
        "piece": "summary",
        "correction": "The reference summary is:",
        "criteria": (
            "A good summary says nothing that is not in the bill; names the bill and has all of its main provisions, "
            "with whom they bind, amounts, terms and conditions; leaves out what a reader can do without; and is plain "
            "and neutral. A title alone, a copy of the bill's own text, and opinions about the bill are no summary."
        ),
    }

    def score(self, problem: Problem, response: Response, gold: str | None) -> Grade:
        """Return 0 for a summary that could not be read; the others are measured by the grader."""
        if gold is None or response.answer is not None:
            return Grade()
        return Grade(scores=dict.fromkeys(MEASURES, 0.0), detail=response.error or "")

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return words of the bill, as many as a summary has, from some place in it."""
        words = self.question(problem).split()
        start = int(rng.integers(max(1, len(words) - self._max_words)))
        return " ".join(words[start : start + self._max_words])

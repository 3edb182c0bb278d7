"""Essay writing as methods see it: an instruction, and a text that no key tells right from wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem
from evorun.tasks.opinions import RUBRIC
from evorun.tasks.prose.task import PROMPTS, Prose

# Of texts without content, as long as a short paragraph
_RANDOM_WORDS = 60
_VOCABULARY = "the a one some few and but so as if we they it this that may can will see take make give way day part"


class Essay(Prose):
    """Answers an instruction with an essay or a story, which is scored by a judge's opinion under a rubric."""

    name = "essay"
    scores = (RUBRIC,)
    graded_by_opinion = True
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    words: Mapping[str, str] = {
        "persona": "an accomplished writer of English prose",
        "subject": "writing instruction",
        "source": "Writing Instruction",
        "piece": "essay",
        "criteria": (
            "A good piece does what the instruction asks, in the form it asks for; keeps to one line of thought and "
            "carries it from an opening through reasons and particulars to an end; and is in plain, correct "
            "English. A title alone, a text that breaks off or goes round in circles, one in another "
            "language, and one that asks back or addresses its judge instead of its reader have not done the task, "
            "however well they sound."
        ),
    }

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return words without order."""
        return " ".join(rng.choice(_VOCABULARY.split(), _RANDOM_WORDS).tolist())

    def score(self, problem: Problem, response: Response, gold: str | None) -> Grade:
        """Return no score: only the judge that the grader asks can give one."""
        return Grade()

"""Essays and stories on writing instructions (MPO, section 3.2), scored by a judge, without right and wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.simulation.writing import read_traits
from evorun.tasks.base import Grade, Grader, Problem
from evorun.tasks.benchmark import Question
from evorun.tasks.benchmark_files import Record
from evorun.tasks.opinions import RUBRIC, OpinionGrader
from evorun.tasks.prose.prose import PROMPTS, Prose, ProseConfig
from evorun.tasks.simulator import TextSimulator

# Length and vocabulary of texts without content, as long as a short paragraph
_RANDOM_WORDS = 60
_VOCABULARY = "the a one some few and but so as if we they it this that may can will see take make give way day part"


class Essay(Prose):
    """Answers an instruction with an essay or a story; a judge's opinion under a rubric is the score."""

    name = "essay"
    scores = (RUBRIC,)
    graded_by_opinion = True
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", PROMPTS)
    wording: Mapping[str, str] = {
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
        """Return random words."""
        return " ".join(rng.choice(_VOCABULARY.split(), _RANDOM_WORDS).tolist())

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Return no score: only the grader's judge can give one."""
        return Grade()


class EssaySimulator(TextSimulator):
    """Compares essays by the share of their sentences that are relevant; it has no right answer to write."""

    def value(self, problem: Problem, answer: str | None) -> float:
        return read_traits(answer or "").quality


@dataclass(kw_only=True)
class EssayConfig(ProseConfig):
    """Writing instructions of English examinations, a persuasion corpus and Change My View (MPO, section 3.2)."""

    task_class = Essay
    simulator = EssaySimulator
    folder = "essay"
    sample = Path(__file__).parent / "sample"
    benchmark = "the collection of writing instructions"
    sizes: ClassVar[Mapping[str, int]] = {"train": 26_013, "test": 4_096}

    def make_task(self) -> Essay:
        return Essay(**self.prompt_settings)

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        return OpinionGrader(task)

    def read(self, record: Record, split: str) -> Question:
        kind = str(record.values.get("kind") or "all")
        data = {"question": record.text("prompt")}
        return Question(problem=Problem(id=self.problem_id(record), stratum=kind, data=data), where=record.where)

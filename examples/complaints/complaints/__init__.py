"""A task without right and wrong: answers to customers' complaints, graded by a judge's opinion under a rubric."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import DataError
from evorun.fields import NonNegativeInt, PositiveInt
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, LoadedTask, Problem, TaskConfig
from evorun.tasks.essay.essay import EssaySimulator
from evorun.tasks.loading import load_rows
from evorun.tasks.opinions import RUBRIC, OpinionGrader
from evorun.tasks.prose.prose import PROMPTS, Prose

FOLDER = Path(__file__).parent


class Complaints(Prose):
    """Asks for a letter; the reply as a whole is the answer, and only the gold judge scores it."""

    name = "complaints"
    scores = (RUBRIC,)
    graded_by_opinion = True
    free_text = True
    prompt_folders: ClassVar[Sequence[Path]] = (FOLDER / "prompts", PROMPTS)
    wording: Mapping[str, str] = {
        "persona": "a member of a shop's customer service",
        "subject": "complaint",
        "source": "Complaint",
        "piece": "letter",
        "criteria": "A good letter takes up what went wrong, says what happens next and when, and promises no more.",
    }

    def score(self, problem: Problem, response: Response, reference: object) -> Grade:
        return Grade()  # the grader asks the gold judge, whom no method can ask


@dataclass
class ComplaintsConfig(TaskConfig):
    """Complaints from a file of JSON lines; the first ones are the problems, the others are held out."""

    task_class = Complaints
    name: str = "complaints"
    description: str = "letters that answer complaints, scored by a judge"
    data: str = str(FOLDER / "complaints.jsonl")
    problems: PositiveInt = 4
    held_out: NonNegativeInt = 4
    max_words: PositiveInt = 120
    prompts: str | None = None

    def load(self) -> LoadedTask:
        lines = Path(self.data).read_text(encoding="utf-8").splitlines()
        if len(lines) < self.problems + self.held_out:
            raise DataError(f"{self.data}: expected {self.problems + self.held_out} complaints, found {len(lines)}")
        rows = [(Problem(stratum="all", **json.loads(line)), None) for line in lines]
        task = Complaints(max_words=self.max_words, prompts=self.prompts)
        return load_rows(
            task,
            rows[: self.problems],
            training=rows[self.problems : self.problems + self.held_out],
            grader=OpinionGrader(task),
            simulator=EssaySimulator,
        )

"""A task in prose as methods see it: prompts that speak of drafts, and a reply that is the answer as a whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, DrawHelp, Problem
from evorun.tasks.tags import inert
from evorun.tasks.text_task import TextTask

MAX_CHARS = 20_000
"""Longest text that is read (ours: five times what these tasks ask for, so that no judge has to read a flood)."""
PROMPTS = Path(__file__).parent / "prompts"


class Prose(TextTask):
    """Asks for a text of at most so many words; a subclass states its `words`, among them those that prompts here use.

    `piece`: what is written. `source`: the heading of what it is written about. `criteria`: what makes it good, as
    judges and improvers are told.
    """

    prompt_folders: ClassVar[Sequence[Path]] = (PROMPTS,)
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems (they come from the train split, less what the run works on)",
        grade_held_out="set task.split=train to grade it",
        keys="task.split, task.train_problems, task.test_problems, task.draw_seed and task.limit",
    )

    def __init__(self, *, max_words: int, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        """Compile the prompts as `TextTask` does. max_words: as prompts ask for; nothing is cut."""
        self._max_words = max_words
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format", max_words=max_words)

    def shared_values(self) -> Mapping[str, Any]:
        return {**super().shared_values(), "max_words": self._max_words}

    def question(self, problem: Problem) -> str:
        text: str = problem.data["question"]
        return text

    def read(self, problem: Problem, text: str) -> str:
        """Return the whole text: whether it is any good, a judge or a metric says. Kind of error: `too_long`."""
        answer = text.strip()
        if len(answer) > MAX_CHARS:
            raise ValueError(f"too_long: expected a text of at most {MAX_CHARS} characters, got {len(answer)}")
        return answer

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return answer

    def judged(self, problem: Problem, response: Response) -> str:
        # What a writer wrote must not end its part of a judge's prompt, nor begin the rival's.
        return inert(super().judged(problem, response))

    def truth_values(
        self, problem: Problem, response: Response, demonstration: Demonstration | None
    ) -> Mapping[str, Any]:
        """Return the reference text, where there is one: how near a response comes is not said in a word."""
        return {"right": False, "right_answer": demonstration.answer if demonstration else "", "grade": ""}

"""The task as methods see it: a contest of integers whose prompts are short enough to train a small model on a CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.models.base import Message
from evorun.tasks.base import DrawHelp, Problem, Prompt
from evorun.tasks.math_contest.task import MathContest


class Arithmetic(MathContest):
    """Answers one line of arithmetic; what prompts it has no short wording for are the contests'.

    Where an answer is asked for from scratch, an answered problem comes before it as an earlier turn: a small model
    copies its form far more often than it follows an instruction, and finds the value more often before the box than
    in it.
    """

    name = "arithmetic"
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *MathContest.prompt_folders)
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems",
        grade_held_out="set task.split=train and raise task.train_problems to grade it",
        keys="task.split, task.operations, task.largest_operand, task.terms, task.draw_seed, the splits' sizes and "
        "task.limit",
    )

    def __init__(self, bounds: tuple[int, int], *, prompts: str | None = None) -> None:
        """Compile the prompts as `TextTask` does. bounds: the smallest and the largest value of an expression."""
        super().__init__(prompts=prompts)
        self._bounds = bounds

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        smallest, largest = self._bounds
        # Values may have more than 64 bits.
        return str(smallest + int(rng.random() * (largest - smallest + 1)))

    def ask(self, role: str, file: str, problem: Problem, *args: Any, **values: Any) -> Prompt:
        prompt = super().ask(role, file, problem, *args, **values)
        # Other prompts show answers already, which a model copies the form of.
        if role not in ("generate", "instruct"):
            return prompt
        system, question = prompt.messages
        shown = (
            Message(role="user", content=self.prompts.render("shown_problem")),
            Message(role="assistant", content=self.prompts.render("shown_answer")),
        )
        return msgspec.structs.replace(prompt, messages=(system, *shown, question))

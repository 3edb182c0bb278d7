"""Settings and draw of tasks from outside, whose problems come in one list without a split of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evorun.errors import DataError
from evorun.fields import NonNegativeInt, PositiveInt
from evorun.runs.streams import stream
from evorun.tasks.base import Problem, TaskConfig


class Split(NamedTuple):
    """Problems of a run, of demonstrations, and to train on; none is in two of them."""

    problems: list[Problem]
    validation: list[Problem]
    training: list[Problem]


@dataclass(kw_only=True)
class OutsideConfig(TaskConfig):
    """Base schema of such tasks."""

    train_problems: NonNegativeInt
    """Number of problems to train on."""
    validation_problems: NonNegativeInt
    """Number of problems for demonstrations and for the choice of prompts."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones in the drawn order."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a candidate's text in later prompts; null: no limit."""

    def split(self, problems: Sequence[Problem], source: str) -> Split:
        """Draw the order of the problems and divide them. Raises DataError where `source` has too few."""
        order = stream(self.draw_seed, "draw", self.name).permutation(len(problems))
        drawn = [problems[index] for index in order]
        held_out = self.train_problems + self.validation_problems
        if held_out >= len(drawn):
            raise DataError(
                f"task={self.name}: expected more than task.train_problems + task.validation_problems = {held_out} "
                f"different problems, {source} has {len(drawn)}"
            )
        validation, training = drawn[: self.validation_problems], drawn[self.validation_problems : held_out]
        return Split(drawn[held_out:][: self.limit], validation, training)

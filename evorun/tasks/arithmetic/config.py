"""Configuration of the task: which expressions, how many of them in each split, and with which prompts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from evorun.errors import ConfigError, DataError, at_least, one_of
from evorun.tasks.arithmetic.generator import SIGNS, SPLITS, Space, draw, value
from evorun.tasks.arithmetic.task import Arithmetic
from evorun.tasks.base import LoadedTask, Problem, Provenance, TaskConfig
from evorun.tasks.math_contest.loading import loaded
from evorun.tasks.math_contest.records import Question, digest_of


@dataclass(kw_only=True)
class ArithmeticConfig(TaskConfig):
    """Contest-format answers to small integer problems, made by a generator (ours): a first task to train on a CPU."""

    task_class = Arithmetic
    training_split = "train"

    split: str
    """train | test: which problems the run works on."""
    operations: list[str]
    """Of add, subtract and multiply; one is drawn for each pair of neighbouring operands."""
    largest_operand: int
    """Operands are drawn from 0 to this."""
    terms: int
    """Operands of a problem."""
    train_problems: int
    test_problems: int
    validation_problems: int
    """Further problems on the train split's side, for demonstrations."""
    limit: int | None
    """Work on this many problems only: the first ones of the split."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, SPLITS)
        for operation in self.operations:
            one_of("task.operations", operation, SIGNS)
        if not self.operations or len(set(self.operations)) < len(self.operations):
            raise ConfigError(f"task.operations: expected distinct ones, at least one, got {list(self.operations)}")
        at_least("task.terms", self.terms, 2)
        for key in ("largest_operand", "train_problems", "test_problems", "limit"):
            at_least(f"task.{key}", getattr(self, key), 1)
        at_least("task.validation_problems", self.validation_problems, 0)

    def load(self) -> LoadedTask:
        """Draw the problems.

        Raises DataError where there are fewer different problems than asked for, ConfigError for prompt files.
        """
        # The demonstrations are drawn after the train split, so that their number does not change it.
        train_side = self._drawn("train", self.train_problems + self.validation_problems)
        train, held_out = train_side[: self.train_problems], train_side[self.train_problems :]
        selected = (train if self.split == "train" else self._drawn("test", self.test_problems))[: self.limit]
        digest = digest_of(selected)
        description = f"{self.split} split, draw_seed {self.draw_seed}"
        provenance = Provenance(source="generated", description=description, digest=digest)
        space = Space(self.operations, self.largest_operand, self.terms)
        return loaded(Arithmetic(bounds=space.bounds(), prompts=self.prompts), selected, held_out, provenance)

    def training(self) -> LoadedTask:
        """Give the whole train split. Raises ConfigError with task.split=train, and what `load` raises."""
        if self.split == "train":
            raise ConfigError(
                "task.split: expected test where weights are trained, got train: the train split is what is trained on"
            )
        return replace(self, split="train", limit=None, validation_problems=0).load()

    def _drawn(self, split: str, size: int) -> Sequence[Question]:
        space = Space(self.operations, self.largest_operand, self.terms)
        found = list(islice(draw(space, split, self.draw_seed), size))
        if len(found) < size:
            sizes = "task.test_problems" if split == "test" else "task.train_problems or task.validation_problems"
            raise DataError(
                f"task={self.name}: expected {size} different problems on the {split} side, found {len(found)}; "
                f"lower {sizes}, or raise task.largest_operand or task.terms"
            )
        return [
            Question(
                problem=Problem(
                    id=f"{split}_{number:04d}",
                    stratum=" and ".join(sorted(set(expression.operations))),
                    data={"problem": f"{expression} ="},
                ),
                answers=(str(value(expression)),),
            )
            for number, expression in enumerate(found)
        ]

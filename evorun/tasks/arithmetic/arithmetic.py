"""Generated integer problems with boxed answers, as in contests: a first task for training weights.

An expression's split is a digest of its operands and operations, each sorted. So no problem is in two splits, and
problems that differ only by order (7 + 5 and 5 + 7) share a split.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf, PositiveInt, require_one_of
from evorun.models.base import Message
from evorun.runs.streams import stream
from evorun.tasks.base import DrawHelp, LoadedTask, Problem, Prompt, Provenance, TaskConfig
from evorun.tasks.benchmark import Question, hash_content
from evorun.tasks.loading import load_rows
from evorun.tasks.math_contest.math_contest import ContestGrader, ContestSimulator, MathContest
from evorun.tasks.split_benchmark import SPLITS, refuse_training_on

SIGNS: Mapping[str, str] = {"add": "+", "subtract": "-", "multiply": "*"}
# After this many draws without a new expression the space counts as exhausted
_MAX_MISSES = 3000


class Expression(NamedTuple):
    """Operands with operations between them; hashable, and equal where the notation is equal."""

    operands: tuple[int, ...]
    operations: tuple[str, ...]

    def __str__(self) -> str:
        """Return the notation in problems: `7 + 5`."""
        steps = zip(self.operations, self.operands[1:], strict=True)
        return " ".join([str(self.operands[0]), *(f"{SIGNS[operation]} {operand}" for operation, operand in steps)])


class Space(NamedTuple):
    """The set of expressions to draw from."""

    operations: Sequence[str]
    largest_operand: int
    """The smallest is 0."""
    terms: int
    """Number of operands."""

    def bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest value of an expression."""
        largest, products, sums = self.largest_operand, "multiply" in self.operations, "add" in self.operations

        def maximum(terms: int, sums: bool) -> int:
            return max(largest, largest**terms if products else 0, largest * terms if sums else 0)

        # The minimum is 0 - x - y ...: subtracted terms add up even where sums are not among the operations.
        smallest = -maximum(self.terms - 1, True) if "subtract" in self.operations else 0
        return smallest, maximum(self.terms, sums)


def value(expression: Expression) -> int:
    """Return the value: products before sums and differences, which go from left to right."""
    total, product = 0, expression.operands[0]
    for operation, operand in zip(expression.operations, expression.operands[1:], strict=True):
        if operation == "multiply":
            product *= operand
        else:
            total += product
            product = operand if operation == "add" else -operand
    return total + product


def assign_split(expression: Expression) -> str:
    """Return the split of an expression, either with probability one half."""
    # Sorted, so that 7 + 5 and 5 + 7 are in the same split.
    content = msgspec.json.encode((sorted(expression.operands), sorted(expression.operations)))
    return SPLITS[blake2b(content, digest_size=1).digest()[0] % len(SPLITS)]


def draw(space: Space, split: str, seed: int) -> Iterator[Expression]:
    """Yield distinct expressions of a split, until the space is exhausted."""
    rng = stream(seed, "arithmetic", split)
    seen: set[Expression] = set()
    misses = 0
    while misses < _MAX_MISSES:
        operands = rng.integers(space.largest_operand + 1, size=space.terms).tolist()
        chosen = rng.integers(len(space.operations), size=space.terms - 1).tolist()
        expression = Expression(tuple(operands), tuple(space.operations[index] for index in chosen))
        misses += 1
        if expression not in seen and assign_split(expression) == split:
            yield expression
            seen.add(expression)
            misses = 0


@lru_cache(maxsize=8)
def draw_first(space: Space, split: str, seed: int, size: int) -> tuple[Expression, ...]:
    """Return the first distinct expressions of a split, fewer where the space has fewer; each job of a sweep asks."""
    return tuple(islice(draw(space, split, seed), size))


class Arithmetic(MathContest):
    """Answers one line of arithmetic; prompts without a short version here are those of contests.

    Prompts that ask for an answer from scratch begin with a solved problem as an earlier turn. A small model copies its
    form far more often than it follows an instruction, and finds the value more often before the box than in it.
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
        # Other prompts already show answers, whose form a model copies.
        if role not in ("generate", "instruct"):
            return prompt
        system, question = prompt.messages
        example = (
            Message(role="user", content=self.prompts.render("shown_problem")),
            Message(role="assistant", content=self.prompts.render("shown_answer")),
        )
        return msgspec.structs.replace(prompt, messages=(system, *example, question))


@dataclass(kw_only=True)
class ArithmeticConfig(TaskConfig):
    """Contest-format answers to small integer problems, made by a generator (ours): a first task to train on a CPU."""

    task_class = Arithmetic
    training_split = "train"

    split: Annotated[str, OneOf(SPLITS)]
    """train | test: which problems the run works on."""
    operations: list[str]
    """Of add, subtract and multiply; one is drawn for each pair of neighbouring operands."""
    largest_operand: PositiveInt
    """Operands are drawn from 0 to this."""
    terms: Annotated[int, Meta(ge=2)]
    """Operands of a problem."""
    train_problems: PositiveInt
    test_problems: PositiveInt
    validation_problems: NonNegativeInt
    """Further problems on the train split's side, for demonstrations."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones of the split."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for operation in self.operations:
            require_one_of("task.operations", operation, SIGNS)
        if not self.operations or len(set(self.operations)) < len(self.operations):
            raise ConfigError(f"task.operations: expected distinct ones, at least one, got {list(self.operations)}")

    def load(self) -> LoadedTask:
        """Draw the problems.

        Raises DataError where there are fewer distinct problems than requested, ConfigError for prompt files.
        """
        # The demonstrations are drawn after the train split, so that their number does not change it.
        train_side = self._draw("train", self.train_problems + self.validation_problems)
        train, held_out = train_side[: self.train_problems], train_side[self.train_problems :]
        selected = (train if self.split == "train" else self._draw("test", self.test_problems))[: self.limit]
        digest = hash_content([question.identifying_fields for question in selected])
        description = f"{self.split} split, draw_seed {self.draw_seed}"
        task = Arithmetic(bounds=self._space.bounds(), prompts=self.prompts)
        return load_rows(
            task,
            [question.row for question in selected],
            validation=[question.row for question in held_out],
            provenance=Provenance(source="generated", description=description, digest=digest),
            grader=ContestGrader(task, {question.problem.id: question.answers for question in (*selected, *held_out)}),
            simulator=ContestSimulator,
        )

    def load_training(self) -> LoadedTask:
        """Return the whole train split. Raises ConfigError with task.split=train, and errors of `load`."""
        refuse_training_on(self.split)
        return replace(self, split="train", limit=None, validation_problems=0).load()

    @property
    def _space(self) -> Space:
        return Space(tuple(self.operations), self.largest_operand, self.terms)

    def _draw(self, split: str, size: int) -> Sequence[Question]:
        expressions = draw_first(self._space, split, self.draw_seed, size)
        if len(expressions) < size:
            sizes = "task.test_problems" if split == "test" else "task.train_problems or task.validation_problems"
            raise DataError(
                f"task={self.name}: expected {size} different problems on the {split} side, found {len(expressions)}; "
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
                details={"contest": None, "year": None},
            )
            for number, expression in enumerate(expressions)
        ]

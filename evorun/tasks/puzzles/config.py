"""Configuration that the puzzles share: which instances, from where, and in which split."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from evorun.errors import ConfigError, DataError
from evorun.runs.streams import stream
from evorun.tasks.base import Demonstration, LoadedTask, Problem, Provenance, TaskConfig
from evorun.tasks.puzzles.grader import PuzzleGrader
from evorun.tasks.puzzles.stand_in import PuzzleStandIn, SolvedPuzzle
from evorun.tasks.puzzles.task import Puzzle
from evorun.validation import at_least, one_of

SPLITS = ("evaluation", "training")
_TRIES = 1000
"""Draws without a new instance after which there are no more."""


class Instance(msgspec.Struct, frozen=True):
    """A puzzle with an answer to it."""

    problem: Problem
    solution: str
    """In canonical form; the best that is known where no right one exists."""


@dataclass
class PuzzleConfig(TaskConfig):
    """What all puzzles configure."""

    split: str = "evaluation"
    """evaluation | training: the instances that results are reported on, or those that fine-tuning data is made of."""
    instances: int = 50
    """Instances of the evaluation split (section 3: 50)."""
    training_instances: int = 100
    """Instances of the training split, disjoint from the others (section 5.2: 100)."""
    validation_instances: int = 8
    """Further instances, for demonstrations and prompt optimisation (ours)."""
    instance_seed: int = 0
    """Which instances are generated. Not the run's seed: runs that differ in their seed then share their problems."""
    data: str | None = None
    """File with instances to use instead of generated ones; null: generate."""
    limit: int | None = None
    """Work on this many problems only: the first ones of the split."""
    prompts: str | None = None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int = 1200
    """Longest reasoning that a later prompt shows (ours)."""

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        one_of("task.split", self.split, SPLITS)
        for key in ("instances", "training_instances", "limit", "shown_reasoning_chars"):
            at_least(f"task.{key}", getattr(self, key), 1)
        for key in ("validation_instances", "instance_seed"):
            at_least(f"task.{key}", getattr(self, key), 0)

    # --- what a subclass knows ---

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> Instance | None:
        """Draw an instance whose problem's id is empty; None when the draw does not fit."""

    @abstractmethod
    def read_data(self, path: Path) -> list[Instance]:
        """Read instances from the user's file. Raises DataError with one line."""

    @abstractmethod
    def make_task(self, instances: Sequence[Instance]) -> Puzzle:
        """Return the task for these instances."""

    @abstractmethod
    def solved(self, task: Puzzle, instance: Instance) -> SolvedPuzzle:
        """Return what a simulated model makes of an instance."""

    # --- loading ---

    def load(self, seed: int) -> LoadedTask:
        """Generate or read the instances; the run's seed has no part in it.

        Raises DataError for a file that cannot be used or settings that leave too few instances, ConfigError for
        prompt files.
        """
        selected, held_out = self._from_file() if self.data is not None else self._generated()
        selected = selected[: self.limit]
        task = self.make_task([*selected, *held_out])
        known = {i.problem.id: self.solved(task, i) for i in (*selected, *held_out)}
        return LoadedTask(
            task=task,
            problems=tuple(instance.problem for instance in selected),
            grader=PuzzleGrader(task),
            stand_in=PuzzleStandIn(known),
            provenance=self._provenance(selected),
            validation=tuple(Demonstration(problem=i.problem, answer=i.solution) for i in held_out),
        )

    def _generated(self) -> tuple[list[Instance], list[Instance]]:
        """Return the split's instances and the held-out ones. Their order is evaluation, held out, training."""
        sizes = (self.instances, self.validation_instances, self.training_instances)
        training = self.split == "training"
        wanted = sum(sizes) if training else sum(sizes[:2])
        drawn = list(islice(self._draw(), wanted))
        if len(drawn) < wanted:
            raise DataError(
                f"task={self.name}: expected {wanted} different instances, found {len(drawn)}; lower task.instances "
                "and task.validation_instances, or allow for larger ones"
            )
        split = drawn[sum(sizes[:2]) :] if training else drawn[: sizes[0]]
        return split, drawn[sizes[0] : sum(sizes[:2])]

    def _draw(self) -> Iterator[Instance]:
        """Yield different instances, without end but for a space that is exhausted."""
        seen: set[bytes] = set()
        number, tries = 0, 0
        while tries < _TRIES:
            rng = stream(self.instance_seed, "instances", self.name, number, tries)
            instance = self.generate(rng)
            key = b"" if instance is None else msgspec.json.encode(instance.problem.data)
            if instance is None or key in seen:
                tries += 1
                continue
            seen.add(key)
            yield _named(instance, f"{self.name}_{self.instance_seed}_{number:03d}")
            number, tries = number + 1, 0

    def _from_file(self) -> tuple[list[Instance], list[Instance]]:
        path = Path(str(self.data)).expanduser()
        if self.split != "evaluation":
            raise ConfigError("task.split: a file given as task.data has no splits; leave one of the two out")
        instances = self.read_data(path)
        if not instances:
            raise DataError(f"{path}: expected at least one instance, found none")
        return instances[: self.instances], instances[self.instances :][: self.validation_instances]

    def _provenance(self, selected: Sequence[Instance]) -> Provenance:
        digest = sha256(msgspec.json.encode([(i.problem.id, i.problem.data) for i in selected])).hexdigest()
        if self.data is not None:
            name = Path(self.data).expanduser().resolve().name
            return Provenance(source="stand_in", description=f"instances of file {name}", digest=digest)
        description = f"{self.split} split, instance_seed {self.instance_seed}"
        return Provenance(source="generated", description=description, digest=digest)


def _named(instance: Instance, name: str) -> Instance:
    return msgspec.structs.replace(instance, problem=msgspec.structs.replace(instance.problem, id=name))

"""Configuration that the puzzles share: the source, number and split of their instances.

A generated instance's content decides its split, not the time of its draw: a digest puts it into the evaluation, the
validation or the training split, each with probability one third. So no instance is in two splits, whatever their sizes
and the `draw_seed`, and however few instances there are. Each split draws from a separate random stream until enough
instances belong to it. This is decided before anything is solved, and no more is drawn than used.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import numpy as np

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf, PositiveInt
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Problem, Provenance, TaskConfig
from evorun.tasks.loading import load_rows
from evorun.tasks.puzzles.puzzle import Puzzle, PuzzleSimulator

TRAINING = "training"
SPLITS = ("evaluation", TRAINING)
# The field with each split's number of instances
_SIZES = {
    "evaluation": "instances",
    "validation": "validation_instances",
    TRAINING: "training_instances",
}
# After this many draws without a new instance, a split counts as exhausted
_MAX_MISSES = 3000


class Instance(NamedTuple):
    """A puzzle with an answer to it."""

    problem: Problem
    solution: str
    """In canonical form; the best known one where no right one exists."""


_drawn: dict[tuple[str, str, int], list[Instance]] = {}
"""Instances by the settings that they were drawn with."""


class Draft(NamedTuple):
    """A generated instance before it is solved."""

    content: bytes
    """Decides the split: instances with equal content are in the same split."""
    finish: Callable[[], Instance | None]
    """Solves it; returns None if it does not fit the settings. The problem's id is still empty."""


@dataclass(kw_only=True)
class PuzzleConfig(TaskConfig):
    """The settings that all puzzles have."""

    task_class: ClassVar[type[Puzzle]]
    simulator: ClassVar[type[PuzzleSimulator]]
    training_split = TRAINING

    split: Annotated[str, OneOf(SPLITS)]
    """evaluation | training: the instances for reported results, or those for fine-tuning data."""
    instances: PositiveInt
    """Instances of the evaluation split."""
    training_instances: PositiveInt
    """Instances of the training split, disjoint from the others."""
    validation_instances: NonNegativeInt
    """Further instances, for demonstrations and prompt optimization. Every run solves them: set 0 if that
    takes long and the method needs none."""
    data: str | None
    """File with instances to use instead of generated ones; null: generate."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones of the split. The others are neither drawn nor solved."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a response's reasoning in later prompts, which show its beginning and end; null: no
    limit."""

    # --- what a subclass defines ---

    @abstractmethod
    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw an instance."""

    @abstractmethod
    def more_room(self) -> str:
        """Return an imperative that says which settings allow for more distinct instances."""

    @abstractmethod
    def read_data(self, path: Path) -> Iterable[Callable[[], Instance]]:
        """Yield, for each instance of the user's file, a function that solves it. Both raise DataError."""

    def make_task(self, instances: Sequence[Instance]) -> Puzzle:
        """Return the task for these instances."""
        return self.task_class(prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

    # --- loading ---

    def load(self) -> LoadedTask:
        """Generate or read the instances.

        Raises DataError for an unusable file or too few instances, ConfigError for prompt files.
        """
        if self.data is not None:
            selected, held_out = self._from_file()
        else:
            selected, held_out = self._draw(self.split, self.limit), self._draw("validation")
        task = self.make_task([*selected, *held_out])
        provenance = self._provenance(selected)
        return load_rows(task, selected, validation=held_out, provenance=provenance, simulator=self.simulator)

    def load_training(self) -> LoadedTask:
        """Return the whole training split.

        Raises ConfigError with a file, and with task.split=training; DataError as `load` does.
        """
        if self.data is not None:
            raise ConfigError("task.data: expected null for a run that trains: a file has no training split")
        if self.split == TRAINING:
            raise ConfigError(
                "task.split: expected evaluation for a run that trains, got training: training uses that split"
            )
        # Training needs no demonstrations, and solving them can take long.
        return replace(self, split=TRAINING, validation_instances=0, limit=None).load()

    def _draw(self, split: str, limit: int | None = None) -> list[Instance]:
        """Return a split's first `limit` instances; None: all. Raises DataError for too few distinct ones.

        A process draws the same instances once: the jobs of a sweep share their puzzles.
        """
        size: int = getattr(self, _SIZES[split])
        wanted = size if limit is None else min(size, limit)
        key = repr(replace(self, split=SPLITS[0], limit=None))
        if (key, split, wanted) not in _drawn:
            _drawn[key, split, wanted] = self._draw_first(split, wanted)
        return list(_drawn[key, split, wanted])

    def _draw_first(self, split: str, wanted: int) -> list[Instance]:
        key, splits = _SIZES[split], tuple(_SIZES)
        instances: dict[bytes, Instance] = {}
        index = last = 0
        while len(instances) < wanted and index - last <= _MAX_MISSES:
            # A stream per draw, so that solving an instance does not affect the next draw.
            draft = self.draft(stream(self.draw_seed, "instances", self.name, split, index))
            digest = int.from_bytes(blake2b(draft.content, digest_size=8).digest(), "big")
            # Solving is the expensive part, so drafts of other splits are dropped before it.
            instance = draft.finish() if splits[digest % len(splits)] == split else None
            content = b"" if instance is None else msgspec.json.encode(instance.problem.data)
            if instance is not None and content not in instances:
                name = f"{self.name}_{self.draw_seed}_{split}_{len(instances):03d}"
                instances[content] = instance._replace(problem=msgspec.structs.replace(instance.problem, id=name))
                last = index
            index += 1
        if len(instances) < wanted:
            raise DataError(
                f"task={self.name}: expected {wanted} different instances in the {split} split, found "
                f"{len(instances)}; lower task.{key}, or {self.more_room()}"
            )
        return list(instances.values())

    def _from_file(self) -> tuple[list[Instance], list[Instance]]:
        path = Path(str(self.data)).expanduser()
        if self.split != "evaluation":
            raise ConfigError(
                f"task.split: expected evaluation with a file (task.data), which has no splits, got {self.split}"
            )
        # Held-out instances come after the others, so a limit does not change them.
        solvers = list(islice(self.read_data(path), self.instances + self.validation_instances))
        if not solvers:
            raise DataError(f"{path}: expected at least one instance, found none")
        selected, held_out = solvers[: self.instances][: self.limit], solvers[self.instances :]
        return [solve() for solve in selected], [solve() for solve in held_out]

    def _provenance(self, selected: Sequence[Instance]) -> Provenance:
        digest = sha256(msgspec.json.encode([(i.problem.id, i.problem.data) for i in selected])).hexdigest()
        if self.data is not None:
            name = Path(self.data).expanduser().resolve().name
            return Provenance(source="stand_in", description=f"instances of file {name}", digest=digest)
        description = f"{self.split} split, draw_seed {self.draw_seed}"
        return Provenance(source="generated", description=description, digest=digest)

"""Configuration that the puzzles share: which instances, from where, and in which split.

The split of a generated instance is decided by what it is, not by when it was drawn: a digest of its content puts it
into the evaluation, the validation or the training split, each with a chance of a third. So no instance is in two of
them, however many of each are asked for, whatever the `draw_seed`, and however few there are in all. Each split has
a random stream of its own, from which instances are drawn until enough are found that belong to it. That is decided
before anything is solved, and no more is drawn than is used.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from evorun.errors import ConfigError, DataError, at_least, one_of
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
# Draws without a new instance of a split after which there are no more
_TRIES = 3000


class Instance(NamedTuple):
    """A puzzle with an answer to it."""

    problem: Problem
    solution: str
    """In canonical form; the best that is known where no right one exists."""


class Draft(NamedTuple):
    """A generated instance before it is solved."""

    content: bytes
    """Decides its split: instances that are equal in this are in the same one."""
    finish: Callable[[], Instance | None]
    """Solves it; its problem's id is empty. None when it does not fit the settings."""


@dataclass(kw_only=True)
class PuzzleConfig(TaskConfig):
    """The settings that all puzzles have."""

    task_class: ClassVar[type[Puzzle]]
    simulator: ClassVar[type[PuzzleSimulator]]
    training_split = TRAINING

    split: str
    """evaluation | training: the instances that results are reported on, or those that fine-tuning data is made of."""
    instances: int
    """Instances of the evaluation split."""
    training_instances: int
    """Instances of the training split, disjoint from the others."""
    validation_instances: int
    """Further instances, for demonstrations and prompt optimisation. They are solved in every run: where that
    takes long and the method needs none, set 0."""
    data: str | None
    """File with instances to use instead of generated ones; null: generate."""
    limit: int | None
    """Work on this many problems only: the first ones of the split. The others are neither drawn nor solved."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int | None
    """As much of a response's reasoning as a later prompt shows, its beginning and its end; null: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, SPLITS)
        for key in ("instances", "training_instances", "limit", "shown_reasoning_chars"):
            at_least(f"task.{key}", getattr(self, key), 1)
        at_least("task.validation_instances", self.validation_instances, 0)

    # --- what a subclass knows ---

    @abstractmethod
    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw an instance."""

    @abstractmethod
    def more_room(self) -> str:
        """Say which settings allow for more different instances: an imperative."""

    @abstractmethod
    def read_data(self, path: Path) -> Iterable[Callable[[], Instance]]:
        """Read the user's file, one by one: what is yielded solves an instance. Both raise DataError with one line."""

    def make_task(self, instances: Sequence[Instance]) -> Puzzle:
        """Return the task for these instances."""
        return self.task_class(prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

    # --- loading ---

    def load(self) -> LoadedTask:
        """Generate or read the instances.

        Raises DataError for a file that cannot be used or settings that leave too few instances, ConfigError for
        prompt files.
        """
        if self.data is not None:
            selected, held_out = self._from_file()
        else:
            selected, held_out = self._drawn(self.split, self.limit), self._drawn("validation")
        task = self.make_task([*selected, *held_out])
        provenance = self._provenance(selected)
        return load_rows(task, selected, validation=held_out, provenance=provenance, simulator=self.simulator)

    def training(self) -> LoadedTask:
        """Give the whole training split.

        Raises ConfigError with a file, and with task.split=training; DataError as `load` does.
        """
        if self.data is not None:
            raise ConfigError("task.data: expected null where weights are trained: a file has no training split")
        if self.split == TRAINING:
            raise ConfigError(
                "task.split: expected evaluation where weights are trained, got training: that split is what is "
                "trained on"
            )
        # Training needs no demonstrations, and solving them can take long.
        return replace(self, split=TRAINING, validation_instances=0, limit=None).load()

    def _drawn(self, split: str, limit: int | None = None) -> list[Instance]:
        """Return a split's first `limit` instances; None: all. Raises DataError where too few are different."""
        key, splits = _SIZES[split], tuple(_SIZES)
        size: int = getattr(self, key)
        wanted = size if limit is None else min(size, limit)
        found: dict[bytes, Instance] = {}
        index = last = 0
        while len(found) < wanted and index - last <= _TRIES:
            # A stream for each draw, so that what solving one instance draws does not change the next one.
            draft = self.draft(stream(self.draw_seed, "instances", self.name, split, index))
            digest = int.from_bytes(blake2b(draft.content, digest_size=8).digest(), "big")
            # Solving is the expensive part, so drafts of other splits are dropped before it.
            instance = draft.finish() if splits[digest % len(splits)] == split else None
            content = b"" if instance is None else msgspec.json.encode(instance.problem.data)
            if instance is not None and content not in found:
                name = f"{self.name}_{self.draw_seed}_{split}_{len(found):03d}"
                found[content] = instance._replace(problem=msgspec.structs.replace(instance.problem, id=name))
                last = index
            index += 1
        if len(found) < wanted:
            raise DataError(
                f"task={self.name}: expected {wanted} different instances in the {split} split, found {len(found)}; "
                f"lower task.{key}, or {self.more_room()}"
            )
        return list(found.values())

    def _from_file(self) -> tuple[list[Instance], list[Instance]]:
        path = Path(str(self.data)).expanduser()
        if self.split != "evaluation":
            raise ConfigError(
                f"task.split: expected evaluation with a file (task.data), which has no splits, got {self.split}"
            )
        # Held-out instances come after those to work on: a limit does not change them.
        given = list(islice(self.read_data(path), self.instances + self.validation_instances))
        if not given:
            raise DataError(f"{path}: expected at least one instance, found none")
        selected, held_out = given[: self.instances][: self.limit], given[self.instances :]
        return [solve() for solve in selected], [solve() for solve in held_out]

    def _provenance(self, selected: Sequence[Instance]) -> Provenance:
        digest = sha256(msgspec.json.encode([(i.problem.id, i.problem.data) for i in selected])).hexdigest()
        if self.data is not None:
            name = Path(self.data).expanduser().resolve().name
            return Provenance(source="stand_in", description=f"instances of file {name}", digest=digest)
        description = f"{self.split} split, draw_seed {self.draw_seed}"
        return Provenance(source="generated", description=description, digest=digest)

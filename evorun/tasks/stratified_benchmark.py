"""Benchmarks that are drawn stratum by stratum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt, require_one_of
from evorun.runs.streams import stream
from evorun.tasks.base import DrawHelp, Provenance
from evorun.tasks.benchmark import BenchmarkConfig
from evorun.tasks.benchmark_files import MissingFilesError, download

T = TypeVar("T")

DRAW_HELP = DrawHelp(
    more_validation="raise task.validation_per_stratum",
    grade_held_out="lower task.validation_per_stratum and raise task.per_stratum to grade it",
    keys="task.per_stratum, task.validation_per_stratum, task.draw_seed and task.limit",
)


@dataclass(kw_only=True)
class StratifiedBenchmark(BenchmarkConfig):
    """A benchmark of several strata, with the same number of problems drawn from each.

    `source=benchmark` and `source=stand_in` read the same locations as `auto`, but the user states the kind of the
    files; `auto` falls back on `hub_id`.
    """

    sources = ("auto", "benchmark", "stand_in", "sample", "hub")
    all_strata: ClassVar[Sequence[str]]
    called: ClassVar[str]
    """The name of the strata in errors (subjects, levels)."""
    sample: ClassVar[Path]
    """The location of evorun's own small set."""
    hub_files: ClassVar[Sequence[str]]
    """Glob patterns of the files to fetch from the hub."""
    known_hub_id: ClassVar[str | None] = None
    missing: ClassVar[tuple[str, str, str]]
    """The arguments of `MissingFilesError`."""
    own_files: ClassVar[str]
    """A description of the benchmark's own files for the provenance; `other_files`: of other files in their layout."""
    other_files: ClassVar[str]

    hub_id: str | None
    """Hub data set that holds the benchmark's files."""
    strata: list[str]
    """Strata to draw from; results are broken down by them."""
    per_stratum: PositiveInt | None
    """Problems per stratum; null: all. A stratum with fewer problems is an error, except in the sample set."""
    reasoning_max_chars: PositiveInt
    """Maximum length of the reasoning in the JSON schema."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for stratum in self.strata:
            require_one_of("task.strata", stratum, self.all_strata)
        if not self.strata or len(set(self.strata)) < len(self.strata):
            raise ConfigError(f"task.strata: expected distinct {self.called}, at least one, got {list(self.strata)}")
        if self.source == "hub" and self.hub_id is None:
            known = f", such as {self.known_hub_id}" if self.known_hub_id else ""
            raise ConfigError(f"task.hub_id: expected a hub data set with task.source=hub{known}, got null")

    def locate(self) -> tuple[Path, str]:
        """Return the location to read, and its name in results."""
        if self.source == "sample":
            return self.sample, "sample"
        if self.source != "hub" and (place := self.place()) is not None:
            return place, f"{'folder' if place.is_dir() else 'file'} {place.resolve().name}"
        if self.hub_id is not None:
            return download(self.hub_id, self.hub_files, "task.hub_id"), f"hub data set {self.hub_id}"
        raise MissingFilesError(*self.missing)

    def draw(self, strata: Mapping[str, Sequence[T]], held_out: int) -> "Draw[T]":
        """Draw the problems, up to the limit, and the held-out ones."""
        drawn = stratified_draw(
            strata,
            per_stratum=self.per_stratum,
            held_out=held_out,
            seed=self.draw_seed,
            name=self.name,
            allow_fewer=self.source == "sample",
        )
        return Draw(drawn.selected[: self.limit], drawn.held_out)

    def describe(self, is_own: bool, place: str, digest: str) -> Provenance:
        """Return the provenance. is_own: the files look like the benchmark's own, unless `source` says otherwise."""
        source = ("benchmark" if is_own else "stand_in") if self.source in ("auto", "hub") else self.source
        description = self.own_files if source == "benchmark" else self.other_files
        return self.provenance(source, f"{description} ({place})", digest)


class Draw(NamedTuple, Generic[T]):
    """A stratified draw; both lists cycle through the strata, so that every prefix is as balanced as possible."""

    selected: list[T]
    held_out: list[T]


def stratified_draw(
    strata: Mapping[str, Sequence[T]],
    *,
    per_stratum: int | None,
    held_out: int,
    seed: int,
    name: str,
    allow_fewer: bool = False,
) -> Draw[T]:
    """Draw `per_stratum` items of each stratum (None: all) to work on and `held_out` others, disjoint from them.

    Each stratum is shuffled by its own random stream (`seed`, `name`, stratum). The selection comes from the front, the
    held-out items from the back. So a smaller `per_stratum` selects a subset of a larger one and keeps the held-out
    items, and one stratum's files do not affect another's draw.

    Raises DataError naming a stratum that is too small. With `allow_fewer`, the selection takes at least one of the
    items left after the held-out ones.
    """
    selected, reserved = [], []
    for stratum, items in strata.items():
        if not items:
            raise DataError(
                f"{name}: stratum '{stratum}' holds no problems: the files have none, or the task's filters leave "
                "none; check task.data and the filters, or remove it from task.strata"
            )
        size = len(items) - held_out
        min_size = 1 if allow_fewer or per_stratum is None else per_stratum
        if size < min_size:
            remedies = ["task.per_stratum"] * (min_size > 1) + ["task.validation_per_stratum"] * (held_out > 0)
            raise DataError(
                f"{name}: stratum '{stratum}' holds {len(items)} problems; expected at least {min_size} to work on and "
                f"{held_out} held out. Lower {' or '.join(remedies)}"
            )
        # A stream per stratum: more files in one stratum do not change the draw of the others.
        order = stream(seed, "draw", name, stratum).permutation(len(items))
        shuffled = [items[i] for i in order]
        selected.append(shuffled[: size if per_stratum is None else min(per_stratum, size)])
        reserved.append(shuffled[size:])
    return Draw(_round_robin(selected), _round_robin(reserved))


def _round_robin(groups: Sequence[Sequence[T]]) -> list[T]:
    absent = object()
    turns = zip_longest(*groups, fillvalue=absent)
    return [item for turn in turns for item in turn if item is not absent]  # type: ignore[misc]

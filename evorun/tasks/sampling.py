"""Seeded stratified draws: which problems a run works on, and which are held out for demonstrations."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Generic, NamedTuple, TypeVar

from evorun.errors import DataError
from evorun.runs.streams import stream

T = TypeVar("T")


class Draw(NamedTuple, Generic[T]):
    """A stratified draw; both parts go round the strata in turn, so that every prefix is as balanced as it can be."""

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

    Each stratum is shuffled by its own random stream (`seed`, `name`, stratum): the selection comes from the front
    and the held-out items from the back. So a smaller `per_stratum` selects a subset of what a larger one does and
    leaves the held-out items alone, and one stratum's files do not disturb another's draw.

    Raises DataError when a stratum is too small, naming it; with `allow_fewer` the selection takes what is there once
    the held-out items are set aside (at least one).
    """
    selected, reserved = [], []
    for stratum, items in strata.items():
        if not items:
            raise DataError(
                f"{name}: stratum '{stratum}' holds no problems: the files have none of it, or the task's filters "
                "leave none; check task.data and the filters, or take it out of task.strata"
            )
        size = len(items) - held_out
        least = 1 if allow_fewer or per_stratum is None else per_stratum
        if size < least:
            remedies = ["task.per_stratum"] * (least > 1) + ["task.validation_per_stratum"] * (held_out > 0)
            raise DataError(
                f"{name}: stratum '{stratum}' holds {len(items)} problems; expected at least {least} to work on and "
                f"{held_out} held out. Lower {' or '.join(remedies)}"
            )
        # A stream for each stratum: more files in one stratum leave the draw of the others as it is.
        order = stream(seed, "draw", name, stratum).permutation(len(items))
        shuffled = [items[i] for i in order]
        selected.append(shuffled[: size if per_stratum is None else min(per_stratum, size)])
        reserved.append(shuffled[size:])
    return Draw(_round_robin(selected), _round_robin(reserved))


def _round_robin(groups: Sequence[Sequence[T]]) -> list[T]:
    absent = object()
    turns = zip_longest(*groups, fillvalue=absent)
    return [item for turn in turns for item in turn if item is not absent]  # type: ignore[misc]

"""Rubrics of single problems: weighted criteria, each judged by itself from 0 to 2 (RLER, rubrics as rewards).

They come with a problem's data, or from a model's reply, and both are read alike.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from evorun.tasks.json_text import find_valid_object, object_schema
from evorun.tasks.rubrics import Rubric, RubricItem, refuse_doubled
from evorun.tasks.thinking import outside_thinking

HIGHEST = 2.0
"""Most points of a judgment (DR Tulu, appendix: 0, 1 or 2)."""
MAX_PROBLEM_ITEMS = 48
"""Most criteria in a problem's data (ours): each costs a call for each response."""
_LEVELS = ((2.0, "It is fully so."), (1.0, "It is so in part."), (0.0, "It is not so."))
_MAX_TITLE, _MAX_DESCRIPTION = 80, 600


class WeightedItem(msgspec.Struct, frozen=True):
    """A criterion of one problem."""

    title: str
    description: str
    """Required of a response or, with a negative weight, forbidden."""
    weight: float = 1.0

    @property
    def rubric(self) -> Rubric:
        """The criterion as a rubric of one item, for `scoring_prompt` and `read_scores`."""
        levels = "\n".join(f"- {points:g}: {text}" for points, text in _LEVELS)
        item = RubricItem(self.title, f"{self.title}\n{self.description}\n{levels}", HIGHEST, _LEVELS)
        return Rubric(item.text, HIGHEST, (item,))


class _Item(msgspec.Struct):
    description: str
    title: str = ""
    weight: float | int = 1.0


class _Reply(msgspec.Struct):
    items: list[_Item]


def read_items(value: Any) -> tuple[WeightedItem, ...]:
    """Read a list of objects with `description`, and perhaps `title` and `weight`, which is 1 by default.

    Raises ValueError("kind: what is wrong") for another form, for weights of 0 or beyond 100, for more than
    `MAX_PROBLEM_ITEMS` items and for two of the same title.
    """
    try:
        given = msgspec.convert(value, list[_Item])
    except msgspec.ValidationError as error:
        raise ValueError(f"items: {error}") from error
    return _check(given, MAX_PROBLEM_ITEMS)


def _check(given: Sequence[_Item], most: int) -> tuple[WeightedItem, ...]:
    """Return the criteria. Raises ValueError as `read_items` does."""
    if len(given) > most:
        raise ValueError(f"items: expected at most {most} of them, got {len(given)}")
    items = []
    for item in given:
        description = " ".join(item.description.split())
        title = " ".join(item.title.split()) or description[:_MAX_TITLE]
        if not description:
            raise ValueError("items: expected a description of each, got an empty one")
        if not 0 < abs(item.weight) <= 100:
            raise ValueError(f"weight: expected a number other than 0, at most 100, got {item.weight!r:.20}")
        items.append(WeightedItem(title, description, float(item.weight)))
    refuse_doubled([item.title for item in items])
    return tuple(items)


def read_written_items(text: str, most: int) -> tuple[WeightedItem, ...]:
    """Read the criteria in a model's reply: an object with `items`, whose weights count only by their sign.

    Raises ValueError("kind: what is wrong").
    """
    found = find_valid_object(outside_thinking(text), "items")
    if found is None:
        raise ValueError("missing: expected a JSON object with the key items, got none")
    try:
        written = msgspec.convert(found.value, _Reply).items
    except msgspec.ValidationError as error:
        raise ValueError(f"json: {error}") from error
    items = _check(written, most)
    return tuple(msgspec.structs.replace(item, weight=math.copysign(1.0, item.weight)) for item in items)


def items_schema(most: int) -> dict[str, Any]:
    """Return the schema of a model's reply with at most `most` criteria."""
    item = object_schema(
        title={"type": "string", "minLength": 1, "maxLength": _MAX_TITLE},
        description={"type": "string", "minLength": 1, "maxLength": _MAX_DESCRIPTION},
        weight={"type": "integer", "enum": [1, -1]},
    )
    return object_schema(items={"type": "array", "items": item, "maxItems": most})

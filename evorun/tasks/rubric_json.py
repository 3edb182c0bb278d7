"""Scores and rubrics as JSON objects, for engines that hold replies to a schema: small models keep to no other form.

An object becomes the tagged text that `read_scores` and `read_rubric` take, so that the same rules hold for both.
"""

from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from evorun.tasks.rubrics import Rubric, RubricItem
from evorun.tasks.tags import inert

T = TypeVar("T")

MAX_REASONS = 800
"""Characters of the reasons for a score (ours)."""
MAX_TITLE, MAX_LEVELS, MAX_DESCRIPTION = 80, 6, 300
"""Characters of an item's title, levels of it, and characters of a level's description (ours)."""


class _Item(msgspec.Struct):
    title: str
    levels: list[str]
    """Descriptions from 0 points upward, a point each: small models give two levels the same points."""


class _Items(msgspec.Struct):
    items: list[_Item]


class _Reply(msgspec.Struct):
    reasons: str
    points: list[float | int]


def scores_schema(rubric: Rubric, item: RubricItem | None = None) -> dict[str, Any]:
    """Return the schema of a score: the reasons first, then the points of each item, or those of the whole."""
    asked = rubric.items if item is None and rubric.items else (rubric if item is None else item,)
    # An array takes one schema for all: whatever is above an item's own points is refused when it is read.
    most = max(one.maximum for one in asked)
    whole = all(float(one.maximum).is_integer() for one in asked)
    number = {"type": "integer" if whole else "number", "minimum": 0, "maximum": int(most) if whole else most}
    points = {"type": "array", "items": number, "minItems": len(asked), "maxItems": len(asked)}
    return _object(reasons={"type": "string", "maxLength": MAX_REASONS}, points=points)


def rubric_schema(most: int) -> dict[str, Any]:
    """Return the schema of a rubric of so many items at most."""
    description = {"type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION}
    levels = {"type": "array", "items": description, "minItems": 2, "maxItems": MAX_LEVELS}
    item = _object(title={"type": "string", "minLength": 1, "maxLength": MAX_TITLE}, levels=levels)
    return _object(items={"type": "array", "items": item, "minItems": 1, "maxItems": most})


def tagged_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> str:
    """Return a score with tags in the place of JSON; a text that is no object as it is.

    Raises ValueError("json: ...") for an object of another form.
    """
    if not text.lstrip().startswith("{"):
        return text
    # Of a member that is there twice the decoder keeps the last; within a string its quotes would be escaped.
    if text.count('"points"') > 1:
        raise ValueError("several: expected one list of points, got another one")
    reply = _decoded(text, _Reply)
    reasons = inert(reply.reasons)
    if item is not None or not rubric.items:
        return "\n".join([reasons, *(f"<score>{one}</score>" for one in reply.points)])
    of_items = (f'<score item="{number}">{one}</score>' for number, one in enumerate(reply.points, 1))
    return "\n".join([reasons, *of_items, f"<total>{sum(Decimal(str(one)) for one in reply.points)}</total>"])


def tagged_rubric(text: str) -> str:
    """Return a rubric with tags in the place of JSON; a text that is no object as it is.

    Raises ValueError("json: ...") for an object of another form.
    """
    if not text.lstrip().startswith("{"):
        return text
    lines = ["<rubric>"]
    for item in _decoded(text, _Items).items:
        levels = [f"- {points}: {_one_line(description)}" for points, description in enumerate(item.levels)]
        lines += ["<item>", _one_line(item.title), *reversed(levels), "</item>"]
    return "\n".join([*lines, "</rubric>"])


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _decoded(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"json: {error}") from error


def _one_line(text: str) -> str:
    return inert(" ".join(text.split()))

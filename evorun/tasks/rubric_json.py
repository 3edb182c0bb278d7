"""Scores and rubrics as JSON objects, for engines that hold replies to a schema: small models keep to no other form.

An object becomes the tagged text that `read_scores` and `read_rubric` take, so that the same rules hold for both.
"""

from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from evorun.tasks.json_text import Found, find_strict
from evorun.tasks.rubrics import Rubric, RubricItem
from evorun.tasks.tags import escape_tags

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


def digits_schema(maximum: float) -> dict[str, Any]:
    """Return the schema of points without any words: a whole number from 0 to the maximum."""
    return {"type": "integer", "minimum": 0, "maximum": int(maximum)}


def rubric_schema(most: int) -> dict[str, Any]:
    """Return the schema of a rubric of so many items at most."""
    description = {"type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION}
    levels = {"type": "array", "items": description, "minItems": 2, "maxItems": MAX_LEVELS}
    item = _object(title={"type": "string", "minLength": 1, "maxLength": MAX_TITLE}, levels=levels)
    return _object(items={"type": "array", "items": item, "minItems": 1, "maxItems": most})


def tagged_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> str:
    """Return a score with tags in the place of the JSON object in it; a text without any as it is.

    Words around the object stay: they may state another score.

    Raises ValueError("json: ...") for an object of another form.
    """
    # Of a member that is there twice the decoder keeps the last; within a string its quotes would be escaped.
    if text.count('"points"') > 1:
        raise ValueError("several: expected one list of points, got another one")
    found = _found(text, "points")
    if found is None:
        return text
    reply = _converted(found.value, _Reply)
    lines = [text[: found.start], escape_tags(reply.reasons)]
    if item is not None or not rubric.items:
        lines += [f"<score>{one}</score>" for one in reply.points]
    else:
        lines += [f'<score item="{number}">{one}</score>' for number, one in enumerate(reply.points, 1)]
        lines += [f"<total>{sum(Decimal(str(one)) for one in reply.points)}</total>"]
    return "\n".join([*lines, text[found.end :]]).strip()


def tagged_rubric(text: str) -> str:
    """Return the last JSON object in a text as a rubric with tags; a text without any as it is.

    Raises ValueError("json: ...") for an object of another form.
    """
    found = _found(text, "items")
    if found is None:
        return text
    lines = ["<rubric>"]
    for item in _converted(found.value, _Items).items:
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


def _found(text: str, key: str) -> Found | None:
    # Repaired, a reply that was cut off would pass for a whole one.
    found = find_strict(text, key)
    if found is None and text.lstrip().startswith("{"):
        raise ValueError(f"json: expected an object with the key {key}, got none that is JSON and ends")
    return found


def _converted(value: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"json: {error}") from error


def _one_line(text: str) -> str:
    return escape_tags(" ".join(text.split()))

"""Scores and rubrics as JSON objects, for engines that enforce a schema: small models keep to no other format.

An object is converted into the tagged text for `read_scores` and `read_rubric`, so that the same rules hold.
"""

from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from evorun.tasks.json_text import Found, find_valid_object, object_schema
from evorun.tasks.rubrics import Rubric, RubricItem
from evorun.tasks.tags import escape_tags

T = TypeVar("T")

MAX_REASONS = 800
"""Maximum characters of the reasons for a score (ours)."""
MAX_TITLE, MAX_LEVELS, MAX_DESCRIPTION = 80, 6, 300
"""Maximum characters of an item's title, levels of an item, and characters of a level's description (ours)."""


class _Item(msgspec.Struct):
    title: str
    levels: list[str]
    """Descriptions of levels from 0 points upward, one point apart: small models would repeat points."""


class _Items(msgspec.Struct):
    items: list[_Item]


class _Reply(msgspec.Struct):
    reasons: str
    points: list[float | int]


def scores_schema(rubric: Rubric, item: RubricItem | None = None) -> dict[str, Any]:
    """Return the schema of a score: reasons first, then the points per item or in total."""
    parts = rubric.items if item is None and rubric.items else (rubric if item is None else item,)
    # An array has one schema for all items: points above an item's maximum are refused when they are read.
    maximum = max(part.maximum for part in parts)
    is_integer = all(float(part.maximum).is_integer() for part in parts)
    number: dict[str, Any] = {"type": "integer" if is_integer else "number", "minimum": 0}
    number["maximum"] = int(maximum) if is_integer else maximum
    points = {"type": "array", "items": number, "minItems": len(parts), "maxItems": len(parts)}
    return object_schema(reasons={"type": "string", "maxLength": MAX_REASONS}, points=points)


def digits_schema(maximum: float) -> dict[str, Any]:
    """Return the schema of points without words: an integer from 0 to the maximum."""
    return {"type": "integer", "minimum": 0, "maximum": int(maximum)}


def rubric_schema(max_items: int) -> dict[str, Any]:
    """Return the schema of a rubric of at most `max_items` items."""
    description = {"type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION}
    levels = {"type": "array", "items": description, "minItems": 2, "maxItems": MAX_LEVELS}
    item = object_schema(title={"type": "string", "minLength": 1, "maxLength": MAX_TITLE}, levels=levels)
    return object_schema(items={"type": "array", "items": item, "minItems": 1, "maxItems": max_items})


def tagged_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> str:
    """Replace the JSON object in a reply by tags; return a text without an object unchanged.

    Words around the object stay, since they may state another score.

    Raises ValueError("json: ...") for an object of another form.
    """
    # The decoder would keep only the last of repeated members; within a string the quotes would be escaped.
    if text.count('"points"') > 1:
        raise ValueError("several: expected one list of points, got several")
    found = _find_object(text, "points")
    if found is None:
        return text
    reply = _convert(found.value, _Reply)
    lines = [text[: found.start], escape_tags(reply.reasons)]
    if item is not None or not rubric.items:
        lines += [f"<score>{points}</score>" for points in reply.points]
    else:
        lines += [f'<score item="{number}">{points}</score>' for number, points in enumerate(reply.points, 1)]
        lines += [f"<total>{sum(Decimal(str(points)) for points in reply.points)}</total>"]
    return "\n".join([*lines, text[found.end :]]).strip()


def tagged_rubric(text: str) -> str:
    """Return the last JSON object in a text as a rubric with tags; return a text without an object unchanged.

    Raises ValueError("json: ...") for an object of another form.
    """
    found = _find_object(text, "items")
    if found is None:
        return text
    lines = ["<rubric>"]
    for item in _convert(found.value, _Items).items:
        levels = [f"- {points}: {_one_line(description)}" for points, description in enumerate(item.levels)]
        lines += ["<item>", _one_line(item.title), *reversed(levels), "</item>"]
    return "\n".join([*lines, "</rubric>"])


def _find_object(text: str, key: str) -> Found | None:
    # Without repair, which would make a cut-off reply look complete.
    found = find_valid_object(text, key)
    if found is None and text.lstrip().startswith("{"):
        raise ValueError(f"json: expected an object with the key {key}, got no complete JSON object")
    return found


def _convert(value: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"json: {error}") from error


def _one_line(text: str) -> str:
    return escape_tags(" ".join(text.split()))

"""Scores that a reward model gives by a rubric, read from its reply: exactly, or not at all.

What leaves a doubt is unparsable, never a guess and never 0: a wrong reward teaches the policy something wrong, and
none costs no more than an episode (MPO's released code evaluates the reply as a program and takes 0 for failure).
"""

import re
from decimal import Decimal
from typing import NamedTuple

from evorun.tasks.rubrics import NUMBER, Rubric, RubricItem
from evorun.tasks.thinking import outside_thinking

_TAG = re.compile(r"<(/?)(score|total)(?![\w-])([^<>]{0,60})(>?)", re.IGNORECASE)
_OF_ITEM = re.compile(r"\s{1,5}item\s?=\s?[\"']?([0-9]{1,3})[\"']?\s{0,5}")
_VALUE = re.compile(
    rf"\s{{0,20}}({NUMBER})(?:\s{{0,5}}(?:/|out\s{{1,5}}of)\s{{0,5}}({NUMBER}))?\s{{0,20}}", re.IGNORECASE
)


class Scores(NamedTuple):
    """The points that a response was given."""

    values: tuple[float, ...]
    """Of each item, in the rubric's order; of a free text, or of an item asked for alone, the one value."""
    total: float
    """The raw reward (MPO, section 2.3)."""
    normalised: float
    """The mean over the values of points by maximum, in [0, 1] (MPO's released code)."""


class _Tagged(NamedTuple):
    """A <score> or <total> of a reply."""

    name: str
    item: int | None
    """Number of the item that it names, from 1."""
    content: str


def read_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> Scores:
    """Read a reply to a scoring prompt: by the rubric as a whole, or by one of its items.

    Raises ValueError with `kind: what is wrong`; kinds: missing, unclosed, tag, value, scale, denominator, several,
    items, total. Time is linear in the text's length.
    """
    tagged = _tags(outside_thinking(text))
    if item is None and rubric.items:
        return _read_jointly(tagged, rubric)
    maximum = rubric.maximum if item is None else item.maximum
    for one in tagged:
        if one.name != "score" or one.item is not None:
            raise ValueError(f"tag: expected one <score>, got a <{one.name}> of another kind")
    value = _one_value(tagged, "score", maximum)
    return Scores((float(value),), float(value), float(value) / maximum)


def _read_jointly(tagged: list[_Tagged], rubric: Rubric) -> Scores:
    values: dict[int, Decimal] = {}
    for one in tagged:
        if one.name == "total":
            continue
        if one.item is None or not 1 <= one.item <= len(rubric.items):
            raise ValueError(f"items: expected scores of items 1 to {len(rubric.items)}, got another one")
        if one.item in values:
            raise ValueError(f"items: expected each item once, got {one.item} again")
        values[one.item] = _value(one.content, rubric.items[one.item - 1].maximum)
    if not values:
        raise ValueError("missing: the reply has no score")
    if len(values) < len(rubric.items):
        raise ValueError(f"items: expected {len(rubric.items)} of them, got {len(values)}")
    total = sum(values.values())
    stated = _one_value([one for one in tagged if one.name == "total"], "total", rubric.maximum)
    if stated != total:
        raise ValueError(f"total: it says {stated}, and its items have {total}")
    of_items = tuple(float(values[number]) for number in sorted(values))
    shares = [value / item.maximum for value, item in zip(of_items, rubric.items, strict=True)]
    return Scores(of_items, float(total), sum(shares) / len(shares))


def _tags(text: str) -> list[_Tagged]:
    """Return the scores and totals of a reply, each closed before the next one begins."""
    found: list[_Tagged] = []
    opened: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        name = tag[2].lower()
        if not tag[4]:
            raise ValueError(f"unclosed: a <{name}> does not end, the reply may have been cut off")
        if tag[1]:
            if opened is None or opened[2].lower() != name or tag[3].strip():
                raise ValueError(f"tag: a </{name}> closes nothing")
            of_item = _OF_ITEM.fullmatch(opened[3])
            if opened[3].strip() and not of_item:
                raise ValueError(f"tag: expected <{name}>, got <{name}{opened[3]:.20}>")
            found.append(_Tagged(name, int(of_item[1]) if of_item else None, text[opened.end() : tag.start()]))
            opened = None
        elif opened is not None:
            raise ValueError(f"tag: a <{name}> begins before the one before it has ended")
        else:
            opened = tag
    if opened is not None:
        raise ValueError(f"unclosed: a <{opened[2].lower()}> does not end, the reply may have been cut off")
    return found


def _one_value(tagged: list[_Tagged], name: str, maximum: float) -> Decimal:
    values = {_value(one.content, maximum) for one in tagged}
    if not values:
        raise ValueError(f"missing: the reply has no {name}")
    if len(values) > 1:
        raise ValueError(f"several: expected one {name}, got {len(values)} different ones")
    return values.pop()


def _value(text: str, maximum: float) -> Decimal:
    """Return a plain decimal, or the numerator of `n/maximum` and `n out of maximum`."""
    found = _VALUE.fullmatch(text)
    if found is None:
        raise ValueError(f"value: expected a number, got '{' '.join(text[:60].split())}'")
    most = Decimal(str(maximum))
    if found[2] is not None and Decimal(found[2]) != most:
        raise ValueError(f"denominator: expected one of {maximum:g}, got {found[2]}")
    value = Decimal(found[1])
    if value > most:
        raise ValueError(f"scale: expected 0 to {maximum:g}, got {found[1]}")
    return value

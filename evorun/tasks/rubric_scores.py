"""Scores that a reward model gives by a rubric, read from its reply: exactly, or not at all.

What leaves a doubt is unparsable, never a guess and never 0: a wrong reward teaches the policy something wrong, and
none costs no more than an episode (MPO's released code evaluates the reply as a program and takes 0 for failure).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import NamedTuple, ParamSpec, TypeVar

from evorun.tasks.given_scores import is_given
from evorun.tasks.rubrics import NUMBER, Rubric, RubricItem
from evorun.tasks.score_forms import ItemLabels, Stated, find_in_json, find_in_table, find_lines, find_tags
from evorun.tasks.thinking import outside_thinking

P = ParamSpec("P")
T = TypeVar("T")

_VALUE = re.compile(
    rf"\s{{0,20}}({NUMBER})(?:\s{{0,5}}(?:/|out\s{{1,5}}of)\s{{0,5}}({NUMBER}))?\s{{0,20}}", re.IGNORECASE
)
# A number that is called a score anywhere in a reply, in quotation marks too
_MENTION = re.compile(
    r"(?:\b(max(?:imum)?|possible)[ \t]{1,5}(?:possible[ \t]{1,5})?)?\b(?:score|rating|points|total)"
    rf"[\"'*_`]{{0,4}}[ \t]{{0,5}}[:=][\s\"'*_`]{{0,9}}({NUMBER})",
    re.IGNORECASE,
)


class Scores(NamedTuple):
    """The points that a response was given."""

    values: tuple[float, ...]
    """Of each item, in the rubric's order; of a free text, or of an item asked for alone, the one value."""
    total: float
    """The raw reward (MPO, section 2.3)."""
    normalised: float
    """The mean over the values of points by maximum, in [0, 1] (MPO's released code)."""


class _Form(NamedTuple):
    """What a reply states in one of the forms."""

    name: str
    stated: list[Stated]
    text: str
    """The text that the places of what is stated refer to."""

    @property
    def scores(self) -> list[Stated]:
        return [one for one in self.stated if not one.is_total]

    @property
    def totals(self) -> list[Stated]:
        return [one for one in self.stated if one.is_total]


def read_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> Scores:
    """Read a reply to a scoring prompt: by the rubric as a whole, or by one of its items.

    Tags are what a reply is asked for. One without them is read from JSON, a table or lines of their own (`Score: 3/5`)
    where they leave no doubt. Wherever a second form states another score, that is a doubt.

    Raises ValueError with `kind: what is wrong`; kinds: missing, unclosed, tag, value, scale, denominator, several,
    not_given, items, total, json. Time is linear in the text's length.
    """
    said = outside_thinking(text)
    if item is None and rubric.items:
        return _read_jointly(said, rubric)
    maximum = rubric.maximum if item is None else item.maximum
    value = _read_one(said, maximum)
    return Scores((float(value),), float(value), float(value) / maximum)


def read_digits(text: str, maximum: float) -> float:
    """Read points that an engine was to hold to digits: one whole number up to the maximum, and nothing else.

    Raises ValueError("value: ..." or "scale: ...").
    """
    digits = outside_thinking(text).strip()
    if not re.fullmatch(r"[0-9]{1,9}", digits):
        raise ValueError(f"value: expected digits alone, got '{' '.join(text[:60].split())}'")
    if int(digits) > maximum:
        raise ValueError(f"scale: expected 0 to {maximum:g}, got {digits}")
    return float(digits)


def _read_one(text: str, maximum: float) -> Decimal:
    forms = _forms(text)
    first = _first_with_scores(forms)
    if first.name == "tags" and any(one.is_total or one.item is not None for one in first.stated):
        raise ValueError("tag: expected one <score>, got one of another kind")
    value = _agreed(first.scores, "score", maximum)
    placed = [one for one in first.scores if one.end]
    if placed and not any(is_given(first.text, one.start, one.end) for one in placed):
        raise ValueError("not_given: the reply names a score in passing, takes it back or declines to give one")
    others = [*first.totals, *(one for form in _readable(forms) for one in form.stated)]
    values = {found for one in others if (found := _or_none(_value, one, maximum)) is not None}
    if first.name != "tags":
        values |= _mentioned(first.text, maximum)
    if doubts := values - {value}:
        raise ValueError(f"several: expected one score, got {value} and {doubts.pop()}")
    return value


def _mentioned(text: str, maximum: float) -> set[Decimal]:
    """Return what is called a score anywhere: a judge may have quoted the response's own opinion of itself."""
    values: set[Decimal] = set()
    for found in _MENTION.finditer(text):
        value = Decimal(found[2])
        if not found[1]:
            values.add(value)
        elif value != Decimal(str(maximum)):
            raise ValueError(f"denominator: expected a maximum of {maximum:g}, got {value}")
    return values


def _read_jointly(text: str, rubric: Rubric) -> Scores:
    labels = ItemLabels(rubric)
    forms = _forms(text, labels)
    totals: list[Stated] = []
    first = _first_with_scores(forms, totals)
    values = _of_items(first, rubric, labels)
    for other in _readable(forms):
        if other.scores and _or_none(_of_items, other, rubric, labels) not in (None, values):
            raise ValueError(f"several: its {other.name} have other scores than its {first.name}")
        totals += [one for one in other.totals if _or_none(_value, one, rubric.maximum) is not None]
    total = sum(values, Decimal(0))
    # An object that ends has all of its members: no total has to tell that none is missing.
    if totals or first.name != "objects":
        stated = _agreed(totals, "total", rubric.maximum)
        if stated != total:
            raise ValueError(f"total: it says {stated}, and its items have {total}")
    shares = [float(value) / item.maximum for value, item in zip(values, rubric.items, strict=True)]
    return Scores(tuple(map(float, values)), float(total), sum(shares) / len(shares))


def _forms(text: str, labels: ItemLabels | None = None) -> Iterator[_Form]:
    """Yield what a reply states in each of the forms, the form that was asked for first."""
    yield _Form("tags", find_tags(text), text)
    in_json, outside = find_in_json(text, labels)
    yield _Form("objects", in_json, outside)
    if labels is not None:
        yield _Form("tables", find_in_table(outside, labels), outside)
    yield _Form("lines", find_lines(outside, labels), outside)


def _first_with_scores(forms: Iterator[_Form], totals: list[Stated] | None = None) -> _Form:
    """Return the first form that states scores; totals: takes those up to it. Raises ValueError("missing: ...")."""
    for form in forms:
        if totals is not None:
            totals += form.totals
        elif form.name == "tags" and form.totals:
            return form
        if form.scores:
            return form
    raise ValueError("missing: the reply has no score")


def _of_items(form: _Form, rubric: Rubric, labels: ItemLabels) -> list[Decimal]:
    """Return the value of each item, in the rubric's order. Raises ValueError."""
    scores = form.scores
    if all(one.item is None for one in scores):
        scores = _numbered(form, labels)
    values: dict[int, Decimal] = {}
    for one in scores:
        if one.item is None or not 1 <= one.item <= len(rubric.items):
            raise ValueError(f"items: expected scores of items 1 to {len(rubric.items)}, got another one")
        if one.item in values:
            raise ValueError(f"items: expected each item once, got {one.item} again")
        values[one.item] = _value(one, rubric.items[one.item - 1].maximum)
    if len(values) < len(rubric.items):
        raise ValueError(f"items: expected {len(rubric.items)} of them, got {len(values)}")
    return [values[number] for number in sorted(values)]


def _numbered(form: _Form, labels: ItemLabels) -> list[Stated]:
    """Return scores without numbers as those of the items in their order, unless the words between name another."""
    numbered: list[Stated] = []
    at = 0
    for number, one in enumerate(form.scores, 1):
        for line in form.text[at : one.start].splitlines():
            named = labels.find(line.strip().partition(":")[0])
            if named not in (None, number):
                raise ValueError(f"items: expected a score of item {number}, got one of item {named}")
        numbered.append(one._replace(item=number))
        at = one.end
    return numbered


def _agreed(stated: Iterable[Stated], name: str, maximum: float) -> Decimal:
    values = {_value(one, maximum) for one in stated}
    if not values:
        raise ValueError(f"missing: the reply has no {name}")
    if len(values) > 1:
        raise ValueError(f"several: expected one {name}, got {len(values)} different ones")
    return values.pop()


def _value(stated: Stated, maximum: float) -> Decimal:
    """Return a plain decimal, or the numerator of `n/maximum` and `n out of maximum`."""
    text = stated.content
    found = _VALUE.fullmatch(text)
    if found is None:
        raise ValueError(f"value: expected a number, got '{' '.join(text[:60].split())}'")
    most = Decimal(str(maximum))
    for denominator in (found[2], stated.maximum or None):
        if denominator is not None and _decimal(denominator) != most:
            raise ValueError(f"denominator: expected one of {maximum:g}, got {denominator:.20}")
    value = Decimal(found[1])
    if value > most:
        raise ValueError(f"scale: expected 0 to {maximum:g}, got {found[1]}")
    return value


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(NUMBER, text) else None


def _readable(forms: Iterator[_Form]) -> Iterator[_Form]:
    """Yield what is left of the forms up to one that cannot be read: beside a form with scores it may be prose."""
    with suppress(ValueError):
        yield from forms


def _or_none(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    try:
        return read(*args, **kwargs)
    except ValueError:
        return None

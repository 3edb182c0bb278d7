"""Scores that a reward model gives by a rubric, parsed from its reply exactly or not at all.

An ambiguous reply is unparsable, never a guess and never 0: a wrong reward would mislead the policy, while a missing
one costs only an episode (MPO's released code evaluates the reply as a program and takes 0 for failure).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import NamedTuple, ParamSpec, TypeVar

from evorun.tasks.given_scores import is_given
from evorun.tasks.rubrics import NUMBER, Rubric, RubricItem
from evorun.tasks.score_forms import ItemLabels, StatedScore, find_in_json, find_in_table, find_lines, find_tags
from evorun.tasks.thinking import outside_thinking

P = ParamSpec("P")
T = TypeVar("T")

_VALUE = re.compile(
    rf"\s{{0,20}}({NUMBER})(?:\s{{0,5}}(?:/|out\s{{1,5}}of)\s{{0,5}}({NUMBER}))?\s{{0,20}}", re.IGNORECASE
)
# A number that is called a score anywhere in a reply, even in quotation marks
_MENTION = re.compile(
    r"(?:\b(max(?:imum)?|possible)[ \t]{1,5}(?:possible[ \t]{1,5})?)?\b(?:score|rating|points|total)"
    rf"[\"'*_`]{{0,4}}[ \t]{{0,5}}[:=][\s\"'*_`]{{0,9}}({NUMBER})",
    re.IGNORECASE,
)


class Scores(NamedTuple):
    """The points of a response."""

    values: tuple[float, ...]
    """Points per item in the rubric's order; a single value for a free-text rubric or a single item."""
    total: float
    """The raw reward (MPO, section 2.3)."""
    normalised: float
    """The mean over the values of points divided by their maximum, in [0, 1] (MPO's released code)."""


class _Form(NamedTuple):
    """The scores that a reply states in one form."""

    name: str
    stated: list[StatedScore]
    text: str
    """The text to which the positions refer."""

    @property
    def scores(self) -> list[StatedScore]:
        return [entry for entry in self.stated if not entry.is_total]

    @property
    def totals(self) -> list[StatedScore]:
        return [entry for entry in self.stated if entry.is_total]


def read_scores(text: str, rubric: Rubric, item: RubricItem | None = None) -> Scores:
    """Read a reply to a scoring prompt, for the whole rubric or for one of its items.

    The prompt asks for tags. Without tags, the scores are read from JSON, a table or separate lines (`Score: 3/5`), if
    these are unambiguous. A second form with another score makes a reply ambiguous.

    Raises ValueError with `kind: what is wrong`; kinds: missing, unclosed, tag, value, scale, denominator, several,
    not_given, items, total, json. Time is linear in the text's length.
    """
    reply = outside_thinking(text)
    if item is None and rubric.items:
        return _read_jointly(reply, rubric)
    maximum = rubric.maximum if item is None else item.maximum
    value = _read_single(reply, maximum)
    return Scores((float(value),), float(value), float(value) / maximum)


def read_digits(text: str, maximum: float) -> float:
    """Read points from a reply of digits only: one integer up to the maximum, and nothing else.

    Raises ValueError("value: ..." or "scale: ...").
    """
    digits = outside_thinking(text).strip()
    if not re.fullmatch(r"[0-9]{1,9}", digits):
        raise ValueError(f"value: expected digits alone, got '{' '.join(text[:60].split())}'")
    if int(digits) > maximum:
        raise ValueError(f"scale: expected 0 to {maximum:g}, got {digits}")
    return float(digits)


def _read_single(text: str, maximum: float) -> Decimal:
    forms = _find_forms(text)
    first = _first_with_scores(forms)
    if first.name == "tags" and any(entry.is_total or entry.item is not None for entry in first.stated):
        raise ValueError("tag: expected one <score>, got another kind of tag")
    value = _read_agreed(first.scores, "score", maximum)
    placed = [entry for entry in first.scores if entry.end]
    if placed and not any(is_given(first.text, entry.start, entry.end) for entry in placed):
        raise ValueError("not_given: the reply names a score in passing, takes it back or declines to give one")
    others = [*first.totals, *(entry for form in _until_unreadable(forms) for entry in form.stated)]
    values = {other for entry in others if (other := _or_none(_read_value, entry, maximum)) is not None}
    if first.name != "tags":
        values |= _find_mentions(first.text, maximum)
    if doubts := values - {value}:
        raise ValueError(f"several: expected one score, got {value} and {doubts.pop()}")
    return value


def _find_mentions(text: str, maximum: float) -> set[Decimal]:
    """Return all numbers called a score: a judge may have quoted the response's opinion of itself."""
    values: set[Decimal] = set()
    for match in _MENTION.finditer(text):
        value = Decimal(match[2])
        if not match[1]:
            values.add(value)
        elif value != Decimal(str(maximum)):
            raise ValueError(f"denominator: expected a maximum of {maximum:g}, got {value}")
    return values


def _read_jointly(text: str, rubric: Rubric) -> Scores:
    labels = ItemLabels(rubric)
    forms = _find_forms(text, labels)
    totals: list[StatedScore] = []
    first = _first_with_scores(forms, totals)
    values = _read_items(first, rubric, labels)
    for other in _until_unreadable(forms):
        if other.scores and _or_none(_read_items, other, rubric, labels) not in (None, values):
            raise ValueError(f"several: its {other.name} have other scores than its {first.name}")
        totals += [entry for entry in other.totals if _or_none(_read_value, entry, rubric.maximum) is not None]
    total = sum(values, Decimal(0))
    # A complete object has all its members, so it needs no total as a check.
    if totals or first.name != "objects":
        stated = _read_agreed(totals, "total", rubric.maximum)
        if stated != total:
            raise ValueError(f"total: it says {stated}, and its items have {total}")
    shares = [float(value) / item.maximum for value, item in zip(values, rubric.items, strict=True)]
    return Scores(tuple(map(float, values)), float(total), sum(shares) / len(shares))


def _find_forms(text: str, labels: ItemLabels | None = None) -> Iterator[_Form]:
    """Yield the scores that a reply states in each form, the requested form first."""
    yield _Form("tags", find_tags(text), text)
    in_json, outside = find_in_json(text, labels)
    yield _Form("objects", in_json, outside)
    if labels is not None:
        yield _Form("tables", find_in_table(outside, labels), outside)
    yield _Form("lines", find_lines(outside, labels), outside)


def _first_with_scores(forms: Iterator[_Form], totals: list[StatedScore] | None = None) -> _Form:
    """Return the first form that states scores. totals: collects the totals of the forms up to it.

    Raises ValueError("missing: ...").
    """
    for form in forms:
        if totals is not None:
            totals += form.totals
        elif form.name == "tags" and form.totals:
            return form
        if form.scores:
            return form
    raise ValueError("missing: the reply has no score")


def _read_items(form: _Form, rubric: Rubric, labels: ItemLabels) -> list[Decimal]:
    """Return the value of each item, in the rubric's order. Raises ValueError."""
    scores = form.scores
    if all(entry.item is None for entry in scores):
        scores = _number_scores(form, labels)
    values: dict[int, Decimal] = {}
    for entry in scores:
        if entry.item is None or not 1 <= entry.item <= len(rubric.items):
            raise ValueError(f"items: expected scores of items 1 to {len(rubric.items)}, got another item")
        if entry.item in values:
            raise ValueError(f"items: expected each item once, got {entry.item} again")
        values[entry.item] = _read_value(entry, rubric.items[entry.item - 1].maximum)
    if len(values) < len(rubric.items):
        raise ValueError(f"items: expected {len(rubric.items)} of them, got {len(values)}")
    return [values[number] for number in sorted(values)]


def _number_scores(form: _Form, labels: ItemLabels) -> list[StatedScore]:
    """Number unnumbered scores in the order of items, unless the text between them names another item."""
    numbered: list[StatedScore] = []
    at = 0
    for number, entry in enumerate(form.scores, 1):
        for line in form.text[at : entry.start].splitlines():
            named = labels.find(line.strip().partition(":")[0])
            if named not in (None, number):
                raise ValueError(f"items: expected a score of item {number}, got one of item {named}")
        numbered.append(entry._replace(item=number))
        at = entry.end
    return numbered


def _read_agreed(stated: Iterable[StatedScore], name: str, maximum: float) -> Decimal:
    values = {_read_value(entry, maximum) for entry in stated}
    if not values:
        raise ValueError(f"missing: the reply has no {name}")
    if len(values) > 1:
        raise ValueError(f"several: expected one {name}, got {len(values)} different ones")
    return values.pop()


def _read_value(stated: StatedScore, maximum: float) -> Decimal:
    """Return a plain decimal, or the numerator of `n/maximum` and `n out of maximum`."""
    text = stated.content
    match = _VALUE.fullmatch(text)
    if match is None:
        raise ValueError(f"value: expected a number, got '{' '.join(text[:60].split())}'")
    max_value = Decimal(str(maximum))
    for denominator in (match[2], stated.maximum or None):
        if denominator is not None and _decimal(denominator) != max_value:
            raise ValueError(f"denominator: expected one of {maximum:g}, got {denominator:.20}")
    value = Decimal(match[1])
    if value > max_value:
        raise ValueError(f"scale: expected 0 to {maximum:g}, got {match[1]}")
    return value


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(NUMBER, text) else None


def _until_unreadable(forms: Iterator[_Form]) -> Iterator[_Form]:
    """Yield the remaining forms up to an unreadable one, which may be prose beside the scores."""
    with suppress(ValueError):
        yield from forms


def _or_none(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    try:
        return read(*args, **kwargs)
    except ValueError:
        return None

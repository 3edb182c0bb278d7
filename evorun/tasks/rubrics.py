"""Rubrics, by which a reward model scores responses: free text with a stated maximum, or items with levels.

A given rubric (a prompt file, a user's file) is free text. A refinement that a meta reward model wrote is read strictly
or rejected: its items are scored one by one, and their points must be unambiguous (MPO, section 2.3 and
appendix I, which has the format).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from evorun.errors import ConfigError
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import outside_thinking

MAX_ITEMS = 64
"""Most items of a rubric (ours): those printed in the paper have up to 9, and each may cost a call."""
MAX_POINTS = 1000
"""Most points of an item (ours): rewards are raw points by default, so a typing error could make millions."""

MAX_CHARS = 2**20
"""Characters of a user's file that are read (ours), far beyond any model's context."""

NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
"""A plain decimal, its digits those of ASCII."""

_TAG = re.compile(r"<(/?)(rubric|item)(?![\w-])([^<>]{0,80})(>?)", re.IGNORECASE)
_GAP = r"[ \t]{0,20}"
_UNIT = r"(?:points?|pts?\.?|marks?)"
_LEVEL = re.compile(
    rf"{_GAP}[-*\u2022]{_GAP}(?<=\s)(?:\*\*|__)?{_GAP}({NUMBER}){_GAP}{_UNIT}?(?:\*\*|__)?{_GAP}:(?:\*\*|__)?(.*)",
    re.IGNORECASE,
)
# A line that begins as a level does, with something other than a plain number in its place
_LIKE_LEVEL = re.compile(
    rf"{_GAP}(?:-[ \t]{{1,20}}|[*\u2022]{_GAP})?(?:\*\*|__)?{_GAP}(?P<sign>[-+\u2212\u2013]|minus\s)?{_GAP}"
    rf"\d(?:[\d\s.,/%+\u2212\u2013\u2014()eE-]|to\b|or\b){{0,20}}{_UNIT}?(?:\*\*|__)?{_GAP}:",
    re.IGNORECASE,
)
_POINTS = re.compile(
    rf"""
      (?<![0-9.])(?P<unit>{NUMBER})[\s-]?{_GAP}{_UNIT}\b            # 10 points
    | \(\s?(?:{NUMBER}\s?(?:[-\u2013\u2014]|to)\s?)?(?P<end>{NUMBER})\s?\)[\s:*_]{{0,9}}$   # (10) or (0-10) at the end
    | (?:/|\bout\sof|\bmax(?:imum)?\.?(?:\sof)?|\bpoints)[\s:=]{{0,3}}(?P<most>{NUMBER})  # /10, out of 10, max 10
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_STATED = re.compile(r"\btotal\b|\bmaximum\s(?:score|points)\b|\b(?:sums?|adds?\sup)\sto\b", re.IGNORECASE)
_COUNTED = re.compile(
    rf"(?<![0-9.])(?:{NUMBER}{_GAP}/{_GAP})?({NUMBER})(?![0-9.]{{0,9}}{_GAP}(?:items?|criteria|categories|sections|words|sentences|paragraphs)\b)",
    re.IGNORECASE,
)
# Marks of a heading or a list at the beginning; emphasis anywhere, underscores only around words
_MARKUP = re.compile(r"^[ \t]{0,20}(?:#{1,6}|[-+\u2022](?=\s))|\*+|`+|(?<!\w)_{1,3}|_{1,3}(?!\w)", re.MULTILINE)
_MAXIMUM = re.compile(rf"maximum:{_GAP}({NUMBER}){_GAP}(?:\n|$)", re.IGNORECASE)


class RubricItem(msgspec.Struct, frozen=True):
    """A criterion of a rubric with its levels."""

    title: str
    text: str
    """Title and levels as they were written."""
    maximum: float
    """Points of its highest level."""
    levels: tuple[tuple[float, str], ...]
    """Points and description, in the order written."""


class Rubric(msgspec.Struct, frozen=True):
    """A rubric; a given one has no items."""

    text: str
    maximum: float
    """Points in total: of a refinement, the sum of its items'."""
    items: tuple[RubricItem, ...] = ()

    @property
    def words(self) -> int:
        """Length in words."""
        return len(self.text.split())

    @property
    def words_per_item(self) -> float:
        """Mean length of an item in words; of a free text, of all of it."""
        return sum(len(item.text.split()) for item in self.items) / len(self.items) if self.items else float(self.words)

    @property
    def text_for_scorers(self) -> str:
        """The rubric as scorers see it: its items numbered, without any tag that a model wrote."""
        if not self.items:
            return self.text
        return "\n\n".join(
            f"## Item {number} (0 to {item.maximum:g} points)\n{escape_tags(item.text)}"
            for number, item in enumerate(self.items, 1)
        )

    def subset(self, kept: Collection[int]) -> "Rubric":
        """Return the rubric with only the items at these indices."""
        return _make_rubric(tuple(item for place, item in enumerate(self.items) if place in kept))


def read_rubric(text: str) -> Rubric:
    """Read a refinement: one <rubric> of items, each with a title and levels (`- 5: description`).

    Raises ValueError with `kind: reason` where the items or their points are ambiguous. Time is linear in the text's
    length.
    """
    text = outside_thinking(text).replace("\r\n", "\n")
    parts, outside = _split(text)
    items = tuple(map(_read_item, parts))
    refuse_doubled([item.title for item in items])
    total = sum((Decimal(str(item.maximum)) for item in items), Decimal(0))
    for stated in _stated_totals(outside):
        if stated != total:
            raise ValueError(f"total: it states {stated} points in total, but its items have {total}")
    return _make_rubric(items)


def is_rubric_file(name: str) -> bool:
    """Return whether a user's name of a rubric means a file."""
    return "/" in name or name.endswith((".md", ".txt"))


def rubric_file(path: Path) -> Rubric:
    """Read a user's rubric (`read_given`). Raises ConfigError naming the file."""
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            return read_given(file.read(MAX_CHARS))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be used as a rubric: {error}") from error


def read_given(text: str) -> Rubric:
    """Read a given rubric: free text after a first line `maximum: N`, or one with items as `read_rubric` reads it.

    Raises ValueError.
    """
    if stated := _MAXIMUM.match(text):
        maximum, rest = float(stated[1]), text[stated.end() :].strip()
        if not 0 < maximum <= MAX_POINTS * MAX_ITEMS or not rest:
            raise ValueError("expected a positive maximum and a rubric after it")
        return Rubric(rest, maximum)
    try:
        return read_rubric(text)
    except ValueError as error:
        raise ValueError(
            f"expected a first line 'maximum: N' (its points), then free text, or a <rubric> of items; {error}"
        ) from error


def _make_rubric(items: tuple[RubricItem, ...]) -> Rubric:
    text = "\n".join(f"<item>\n{item.text}\n</item>" for item in items)
    total = sum((Decimal(str(item.maximum)) for item in items), Decimal(0))
    return Rubric(f"<rubric>\n{text}\n</rubric>", float(total), items)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the items' texts and the texts outside them, from the opening of the rubric on."""
    items: list[str] = []
    outside: list[str] = []
    state, at = "before", 0
    for tag in _TAG.finditer(text):
        closing, name, rest, end = tag[1] == "/", tag[2].lower(), tag[3].strip(), tag[4]
        shown = " ".join(tag[0].split())[:40]
        if not end:
            raise ValueError(f"unclosed: the tag {shown} does not end")
        if rest:
            raise ValueError(f"tag: expected <{name}>, got {shown}")
        written = text[at : tag.start()]
        match state, name, closing:
            case "before", "rubric", False:
                state = "rubric"
            case "rubric", "item", False:
                outside.append(written)
                state = "item"
            case "item", "item", True:
                items.append(written)
                state = "rubric"
            case "rubric", "rubric", True:
                outside.append(written)
                state = "after"
            case "after", "rubric", False:
                raise ValueError("doubled: expected one <rubric>, got a second one")
            case ("item", "item", False) | ("rubric" | "item", "rubric", False):
                raise ValueError(f"nested: a <{name}> begins inside an <{state}>")
            case "item", "rubric", True:
                raise ValueError("unclosed: the rubric ends inside an item")
            case _:
                raise ValueError(f"tag: {shown} stands where none is expected")
        at = tag.end()
    if state == "before":
        raise ValueError("missing: expected a <rubric>, got none")
    if state != "after":
        raise ValueError(f"unclosed: the <{state}> does not end, the text may have been cut off")
    if not items:
        raise ValueError("empty: the rubric has no items")
    if len(items) > MAX_ITEMS:
        raise ValueError(f"items: expected at most {MAX_ITEMS} of them, got {len(items)}")
    return items, [*outside, text[at:]]


def _read_item(text: str) -> RubricItem:
    lines = text.strip().split("\n")
    title = plain_title(lines[0])
    if not title or _LIKE_LEVEL.match(lines[0]):
        raise ValueError(f"title: expected an item to begin with a title, got '{lines[0].strip():.60}'")
    levels: dict[Decimal, list[str]] = {}
    heading = current = [lines[0]]
    for line in lines[1:]:
        if level := _LEVEL.match(line):
            points, current = Decimal(level[1]), [level[2].strip()]
            if points in levels:
                raise ValueError(f"doubled: '{title:.60}' has two levels of {points} points")
            levels[points] = current
        elif odd := _LIKE_LEVEL.match(line):
            kind = "negative" if odd["sign"] and odd["sign"] != "+" else "level"
            raise ValueError(f"{kind}: expected levels as '- 5: description', got '{line.strip():.60}'")
        else:
            current.append(line.strip())
    if not levels:
        raise ValueError(f"level: '{title:.60}' has no levels ('- 5: description')")
    highest = max(levels)
    if not 0 < highest <= MAX_POINTS:
        raise ValueError(f"points: expected '{title:.60}' to be worth up to {MAX_POINTS}, got {highest}")
    _check_points("\n".join(map(plain_title, heading)), title, highest)
    described = tuple((float(points), " ".join(filter(None, words))) for points, words in levels.items())
    return RubricItem(title, text.strip(), float(highest), described)


def plain_title(text: str) -> str:
    """Return a title without its markup: a heading's or a list's mark, emphasis, and a colon behind it."""
    return _MARKUP.sub("", text).strip(" \t:")


def refuse_doubled(titles: Sequence[str]) -> None:
    """Raise ValueError where two items have one title."""
    seen = set[str]()
    for title in titles:
        if (normalised := normalised_title(title)) in seen:
            raise ValueError(f"doubled: two items have the title '{title:.60}'")
        seen.add(normalised)


def normalised_title(title: str) -> str:
    """Return a title without details that vary for one criterion: points in brackets, a number, punctuation, case."""
    words = re.findall(r"[^\W_]+", re.sub(r"\([^()]{0,60}\)", " ", title.casefold()))
    return " ".join(words[1:] if len(words) > 1 and words[0].isdigit() else words)


def _check_points(heading: str, title: str, highest: Decimal) -> None:
    """Raise ValueError where an item's heading states other points than its highest level."""
    if re.search(r"\d\s?%", heading):
        raise ValueError(f"points: '{title:.60}' has a weight in per cent; expected points")
    for found in _POINTS.finditer(heading):
        stated = Decimal(found["unit"] or found["end"] or found["most"])
        if stated != highest:
            raise ValueError(f"points: '{title:.60}' states {stated}, but its highest level is {highest}")


def _stated_totals(outside: list[str]) -> Iterator[Decimal]:
    for line in "\n".join(outside).split("\n"):
        if not (named := _STATED.search(line)):
            continue
        # "10 + 10 = 20": the sum is meant; "60 points in total": the number may stand before the word
        after = _COUNTED.findall(line[named.end() :].rpartition("=")[2])
        before = _COUNTED.findall(line[: named.start()])
        if after or before:
            yield Decimal(after[0] if after else before[-1])

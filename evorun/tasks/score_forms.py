"""The forms in which replies state scores: tags, JSON, a table, and lines such as `Score: 3/5`.

This module finds each as it was written; `rubric_scores` decides which of them are unambiguous.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from evorun.tasks.rubrics import NUMBER, Rubric, normalised_title, plain_title

MAX_LABEL = 200
"""Most characters of a line's label (ours)."""

_TAG = re.compile(r"<(/?)(score|total)(?![\w-])([^<>]{0,60})(>?)", re.IGNORECASE)
_ITEM_ATTRIBUTE = re.compile(r"\s{1,5}item\s?=\s?[\"']?([0-9]{1,3})[\"']?\s{0,5}")

_WHOSE = r"(?:(?:my|the|your)\s)?"
_SCORE_LABEL = re.compile(rf"{_WHOSE}(?:score|scores|points|rating)")
_FINAL_LABEL = re.compile(rf"{_WHOSE}(?:final|overall)\s(?:score|points|rating)")
_TOTAL_LABEL = re.compile(rf"{_WHOSE}(?:final\s|overall\s)?(?:total|sum)(?:\s(?:score|points|of\spoints))?")
_MAXIMUM_LABEL = re.compile(r"(?:max|maximum|possible|available|out of)(?:\s(?:possible\s)?(?:score|points))?")
_NUMBERED = re.compile(r"(?:item|criterion)?\s?#?\s?([0-9]{1,3})(?:\s?[.):\u2013-])?(?:\s(.*))?")

_LIST_MARK = re.compile(r"[ \t]{0,20}(?:[-+*\u2022][ \t]{1,5}|#{1,6}[ \t]{1,5})?")
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+")
_EMPHASIS = "*_`"
_SEPARATOR = re.compile(r"\|(?:\s{0,5}:?-{1,200}:?\s{0,5}\|)+")
_SCORE_COLUMN = re.compile(r"\b(?:scores?|points?|rating)\b")
_MAXIMUM_COLUMN = re.compile(r"\b(?:max|maximum|possible|available|out of|weight)\b")
_OBJECT = re.compile(r"^[ \t]{0,20}(?:\{\s{0,50}\"|\[\s{0,50}\{)", re.MULTILINE)
_AFTER_OBJECT = re.compile(r"[ \t]{0,20}(?:```)?[ \t]{0,20}(?:\n|$)")

_CONTAINERS = frozenset({"scores", "points", "ratings", "items", "criteria", "rubric", "evaluation", "result"})
_ITEM_LABELS = frozenset({"item", "id", "number", "title", "name", "criterion", "rubric item"})


class StatedScore(NamedTuple):
    """A score or a total that a reply states."""

    is_total: bool
    item: int | None
    """Number of its item, from 1; None: it names none."""
    content: str
    maximum: str = ""
    """As stated beside it."""
    start: int = 0
    end: int = 0
    """Position in the reply, in characters."""


class ItemLabels:
    """Finds the item of a rubric that a label names, by number, by title or by both."""

    def __init__(self, rubric: Rubric) -> None:
        self._count = len(rubric.items)
        self._plain = {item.title.casefold(): number for number, item in enumerate(rubric.items, 1)}
        self._names = {normalised_title(item.title): number for number, item in enumerate(rubric.items, 1)}

    def find(self, label: str) -> int | None:
        """Return the number of the item, or None for a label that names none.

        Raises ValueError where number and title belong to two items.
        """
        if len(label) > MAX_LABEL:
            return None
        label = plain_title(label).casefold()
        if label in self._plain:
            return self._plain[label]
        numbered = _NUMBERED.fullmatch(label)
        if numbered is None:
            return self._names.get(normalised_title(label))
        number, title = int(numbered[1]), numbered[2]
        if title is None:
            return number if 1 <= number <= self._count else None
        named = self._names.get(normalised_title(title))
        if named not in (None, number):
            raise ValueError(f"items: '{label:.60}' has the number of one item and the title of another")
        return named


def find_tags(text: str) -> list[StatedScore]:
    """Return the scores and totals in tags, each closed before the next one begins.

    Raises ValueError("tag: ..." or "unclosed: ...").
    """
    found: list[StatedScore] = []
    opened: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        name = tag[2].lower()
        if not tag[4]:
            raise ValueError(f"unclosed: a <{name}> does not end, the reply may have been cut off")
        if tag[1]:
            if opened is None or opened[2].lower() != name or tag[3].strip():
                raise ValueError(f"tag: a </{name}> closes nothing")
            of_item = _ITEM_ATTRIBUTE.fullmatch(opened[3])
            if opened[3].strip() and not of_item:
                raise ValueError(f"tag: expected <{name}>, got <{name}{opened[3]:.20}>")
            item = int(of_item[1]) if of_item else None
            content = text[opened.end() : tag.start()]
            found.append(StatedScore(name == "total", item, content, start=opened.start(), end=tag.end()))
            opened = None
        elif opened is not None:
            raise ValueError(f"tag: a <{name}> begins before the previous tag has ended")
        else:
            opened = tag
    if opened is not None:
        raise ValueError(f"unclosed: a <{opened[2].lower()}> does not end, the reply may have been cut off")
    return found


def find_lines(text: str, labels: ItemLabels | None = None) -> list[StatedScore]:
    """Return the scores on separate lines, as in `**Score:** 4`, also at the end of a line of prose.

    labels: of the items where a rubric's items are scored together; then a final score is their total.
    """
    found: list[StatedScore] = []
    lines = text.splitlines(keepends=True)
    at = 0
    for line, below in pairwise([*lines, ""]):
        stated = _find_in_line(line, below, labels)
        if stated is None and (tail := _SENTENCE_END.split(line.strip())[-1]) != line.strip():
            stated = _find_in_line(tail, "", None if labels is None else _NO_LABELS)
        if stated is not None:
            found.append(stated._replace(start=at, end=at + len(line)))
        at += len(line)
    return found


def _find_in_line(line: str, below: str, labels: ItemLabels | None) -> StatedScore | None:
    before, colon, after = line[_LIST_MARK.match(line).end() :].strip().partition(":")  # type: ignore[union-attr]
    if not colon or len(before) > MAX_LABEL:
        return None
    label, marks = _without_emphasis(before)
    content, more = _without_emphasis(after.strip())
    if not content and re.fullmatch(rf"[{_EMPHASIS}]{{0,3}}{NUMBER}\b.{{0,{MAX_LABEL}}}", below.strip()):
        content, last = _without_emphasis(below.strip())
        more += last
    if not _closed(marks + more):
        content = after.strip() or before  # not a number, so it is rejected later
    content = content.removesuffix(".")
    name = " ".join(label.casefold().split())
    if _SCORE_LABEL.fullmatch(name):
        return StatedScore(False, None, content)
    if _FINAL_LABEL.fullmatch(name) or (labels is None and name.endswith("total score")):
        return StatedScore(labels is not None, None, content)
    if _TOTAL_LABEL.fullmatch(name):
        return StatedScore(True, None, content)
    number = labels.find(label) if labels is not None and re.match(r"[-+]?\d", content) else None
    return None if number is None else StatedScore(False, number, content)


def _without_emphasis(text: str) -> tuple[str, list[str]]:
    """Return a text without the emphasis around it, and the marks of emphasis in order."""
    inner = text.strip(f"{_EMPHASIS} \t\n")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return inner, re.findall(r"\*+|_+|`+", f"{before} {after}")


def _closed(marks: list[str]) -> bool:
    """Return whether each mark is closed by its like."""
    open_marks: list[str] = []
    for mark in marks:
        if open_marks and open_marks[-1] == mark:
            open_marks.pop()
        else:
            open_marks.append(mark)
    return not open_marks


def find_in_table(text: str, labels: ItemLabels) -> list[StatedScore]:
    """Return the scores of tables that have a column of scores.

    Raises ValueError where the column, or the item of a row, is ambiguous.
    """
    found: list[StatedScore] = []
    lines = text.splitlines()
    for place, line in enumerate(lines[1:], 1):
        if not _SEPARATOR.fullmatch(line.strip()) or not lines[place - 1].strip().startswith("|"):
            continue
        header = [cell.casefold() for cell in _cells(lines[place - 1])]
        maximum_columns = [number for number, cell in enumerate(header) if _MAXIMUM_COLUMN.search(cell)]
        score_columns = [n for n, cell in enumerate(header) if _SCORE_COLUMN.search(cell) and n not in maximum_columns]
        if not score_columns:
            continue
        if len(score_columns) > 1 or len(maximum_columns) > 1:
            raise ValueError("several: expected one column of scores, and at most one of maxima")
        in_header = re.findall(NUMBER, header[score_columns[0]])[-1:]
        for row in lines[place + 1 :]:
            if not row.strip().startswith("|"):
                break
            cells = _cells(row)
            if len(cells) != len(header):
                raise ValueError(f"items: expected rows of {len(header)} cells, got one of {len(cells)}")
            given = [cell for number, cell in enumerate(cells[: score_columns[0]]) if number not in maximum_columns]
            is_total = any(map(_is_total, given))
            item = None if is_total else _find_item(given, labels)
            maximum = cells[maximum_columns[0]] if maximum_columns else "" if is_total else "".join(in_header)
            found.append(StatedScore(is_total, item, cells[score_columns[0]], maximum))
    return found


def _cells(row: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", row.strip())[1:]
    return [_without_emphasis(cell)[0] for cell in (cells if cells and cells[-1].strip() else cells[:-1])]


def _is_total(label: str) -> bool:
    name = " ".join(label.casefold().rstrip(":").split())
    return bool(_TOTAL_LABEL.fullmatch(name) or _FINAL_LABEL.fullmatch(name))


def _find_item(given: list[str], labels: ItemLabels) -> int:
    """Return the item that all labels of a score name. Raises ValueError."""
    numbers = [labels.find(label) for label in given if label]
    if not numbers or None in numbers or len(set(numbers)) > 1:
        raise ValueError(f"items: expected a score to name one item of the rubric, got '{' '.join(given):.60}'")
    return numbers[0] or 0


class JsonScores(NamedTuple):
    """The scores in JSON values, and the text without those values."""

    stated: list[StatedScore]
    outside: str


def find_in_json(text: str, labels: ItemLabels | None = None) -> JsonScores:
    """Return the scores in JSON objects that begin a line and end one, fenced or not.

    labels: of the items where a rubric's items are scored together. Raises ValueError.
    """
    found: list[StatedScore] = []
    outside: list[str] = []
    at = 0
    while opening := _OBJECT.search(text, at):
        start = opening.start() + len(opening[0]) - len(opening[0].lstrip())
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"json: {error}") from error
        if not _AFTER_OBJECT.match(text, end):
            raise ValueError("json: expected nothing behind an object on its line, got words")
        try:
            found += _in_single(value) if labels is None else _in_joint(value, labels)
        except RecursionError as error:
            raise ValueError(f"json: {error}") from error
        outside.append(text[at:start])
        at = end
    return JsonScores(found, " ".join([*outside, text[at:]]))


class _Number(str):
    """A number as it was written."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("an object has a member twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
)


def _in_single(value: Any) -> Iterator[StatedScore]:
    """Yield the members of objects, at any depth, whose names are labels of scores."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            members = {_key(name): member for name, member in node.items()}
            for name, member in members.items():
                is_score = _SCORE_LABEL.fullmatch(name) or _FINAL_LABEL.fullmatch(name) or name == "total score"
                if is_score or _TOTAL_LABEL.fullmatch(name):
                    [score] = member if isinstance(member, list) and len(member) == 1 else [member]
                    yield StatedScore(not is_score, None, _scalar(score), _stated_maximum(members))
                else:
                    pending.append(member)


def _in_joint(value: Any, labels: ItemLabels) -> Iterator[StatedScore]:
    """Yield the items' scores: in a list in their order, in objects that name them, or as members with their names."""
    if isinstance(value, list):
        yield from (
            _in_object(member, labels) if isinstance(member, dict) else StatedScore(False, None, _scalar(member))
            for member in value
        )
        return
    for name, member in value.items():
        key = _key(name)
        if key in _CONTAINERS and isinstance(member, dict | list):
            yield from _in_joint(member, labels)
        elif _TOTAL_LABEL.fullmatch(key) or _FINAL_LABEL.fullmatch(key):
            yield StatedScore(
                True, None, _scalar(member), _stated_maximum({_key(other): value[other] for other in value})
            )
        elif isinstance(member, dict):
            yield _in_object({**member, "rubric item": name}, labels)
        elif _MAXIMUM_LABEL.fullmatch(key):
            continue
        elif labels.find(name) is not None or isinstance(member, _Number):
            yield StatedScore(False, _find_item([name], labels), _scalar(member))


def _in_object(node: dict[str, Any], labels: ItemLabels) -> StatedScore:
    members = {_key(name): member for name, member in node.items()}
    given = [str(member) for name, member in members.items() if name in _ITEM_LABELS]
    contents = [_scalar(member) for name, member in members.items() if _SCORE_LABEL.fullmatch(name)]
    if len(contents) != 1:
        raise ValueError(f"items: expected an object with one score, got {len(contents)}")
    return StatedScore(False, _find_item(given, labels) if given else None, contents[0], _stated_maximum(members))


def _key(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", plain_title(name).casefold()))


def _stated_maximum(members: dict[str, Any]) -> str:
    return next((str(member) for name, member in members.items() if _MAXIMUM_LABEL.fullmatch(name)), "")


def _scalar(value: Any) -> str:
    """Return a number or a text as it was written. Raises ValueError."""
    if isinstance(value, str):
        return value
    raise ValueError(f"value: expected a number, got {json.dumps(value):.60}")


_NO_LABELS = ItemLabels(Rubric("", 1))

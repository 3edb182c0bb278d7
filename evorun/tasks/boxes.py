r"""Finding the last boxed answer in a text: `\boxed{...}` with any braces inside."""

import re
from collections.abc import Sequence
from typing import NamedTuple

# More than one backslash precedes the command where a model has escaped its text once too often; where it has not
# escaped it at all, the backslash is missing, or has become a backspace together with the b.
_TOKEN = re.compile(
    r"(?P<box>\\{1,4}(?:boxed|fbox|framebox)(?![A-Za-z])|(?<![A-Za-z\\])(?:boxed|\x08oxed)(?=\{))|\\.|(?P<brace>[{}])",
    re.DOTALL,
)
_BARE = re.compile(r"[ \t]*([^\s${}\\]+)")
_OPENING = re.compile(r"\s*\{")
_OR = re.compile(r"[\s$.,;*()\[\]\\]*(?:or|and|/)[\s$.,;*()\[\]\\]*")
_AND = re.compile(r"[\s$()\[\]\\*]*(?:,|,?\s*\band\b)[\s$()\[\]\\*]*")
# A box of the instructions, which a model repeats
_PLACEHOLDER = re.compile(
    r"\\{1,2}(?:boxed|fbox)\s*\{\s*(?:\\text\s*\{\s*)?(?:[<\[(]\s*)?(?:(?:(?:your|the|final|exact)\s+)*answer(?:\s+here)?"
    r"|\.{2,}|\\[cl]?dots|\?+|_+)\s*(?:[>\])]\s*)?\}{1,2}",
    re.IGNORECASE,
)
_TRAILING = ".,;:!?)*"
# As many boxes directly inside each other are taken off
_MOST_BOXES = 4


class Box(NamedTuple):
    """A finished box."""

    start: int
    """Index of its command in the text."""
    end: int
    """Index of the first character after it."""
    content: slice
    """The part of the text inside it: cut out of one box only, for boxes can be nested a thousand deep."""


class _Open(NamedTuple):
    """A brace that has not been closed."""

    content: int
    box: int | None
    """Index of the command of the box that the brace opens; None: it opens no box."""


def boxes(text: str) -> list[Box]:
    r"""Return the outermost finished boxes of a text that ends in a finished box; none otherwise.

    Braces escaped as `\{` do not count. A box without braces holds the word that follows on its line (`\boxed 5`). A
    box that is never closed is unfinished: when none is finished after it, the text has been cut off before its last
    answer was complete, and nothing counts. Time is linear in the text's length.
    """
    found: list[Box] = []
    stack: list[_Open] = []
    unfinished = -1
    at = 0
    # One pass with a stack: nested patterns would take quadratic time on "\boxed{" repeated ten thousand times.
    while token := _TOKEN.search(text, at):
        at = token.end()
        if token["box"]:
            opening = _OPENING.match(text, at)
            bare = _BARE.match(text, at)
            if opening:
                at = opening.end()
                stack.append(_Open(at, token.start()))
            elif bare and (word := bare[1].rstrip(_TRAILING)):
                at = bare.end()
                found.append(Box(token.start(), at, slice(bare.start(1), bare.start(1) + len(word))))
            else:
                unfinished = token.start()
        elif token["brace"] == "{":
            stack.append(_Open(at, None))
        elif token["brace"] and stack:
            opened = stack.pop()
            if opened.box is not None:
                # Boxes inside this one were found before it was closed; only the outermost counts.
                while found and found[-1].start > opened.box:
                    found.pop()
                found.append(Box(opened.box, at, slice(opened.content, at - 1)))
    # A box that is still open at the end was cut off, and so were all braces around it.
    unfinished = max([unfinished, *(one.box for one in stack if one.box is not None)])
    return found if found and unfinished < found[-1].end else []


def without_placeholders(text: str) -> str:
    r"""Return a text without boxes that hold no answer, but the place for one: `\boxed{ANSWER}`."""
    return _PLACEHOLDER.sub(" ", text)


def last_boxed(text: str) -> str | None:
    """Return the content of the last box, without boxes around all of it; None when there is none (see `boxes`)."""
    found = boxes(text)
    if not found:
        return None
    return unboxed(text[found[-1].content])


def unboxed(content: str) -> str:
    """Return a box's content without boxes around all of it."""
    content = content.strip()
    for _ in range(_MOST_BOXES - 1):
        inner = boxes(content)
        if len(inner) != 1 or (inner[0].start, inner[0].end) != (0, len(content)):
            break
        content = content[inner[0].content].strip()
    return content


def listed_boxes(text: str, found: Sequence[Box]) -> Sequence[Box]:
    """Return the boxes at the end of `found` between which a text has nothing but "and" or a comma."""
    first = len(found) - 1
    while first > 0 and _AND.fullmatch(text, found[first - 1].end, found[first].start):
        first -= 1
    return found[first:]


def has_alternatives(text: str) -> bool:
    r"""Tell whether a text ends in two boxes with nothing but "or" between them, and different answers in them."""
    if len(last := boxes(text)[-2:]) < 2:
        return False
    one, other = last
    return bool(_OR.fullmatch(text, one.end, other.start)) and text[one.content] != text[other.content]


def is_in_form(text: str) -> bool:
    """Say whether a text is of the form asked for: one finished box, and no letter or digit after it."""
    found = boxes(text)
    return len(found) == 1 and not any(character.isalnum() for character in text[found[0].end :])

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
# A placeholder box from the instructions, which a model repeats
_PLACEHOLDER = re.compile(
    r"\\{1,2}(?:boxed|fbox)\s*\{\s*(?:\\text\s*\{\s*)?(?:[<\[(]\s*)?(?:(?:(?:your|the|final|exact)\s+)*answer(?:\s+here)?"
    r"|\.{2,}|\\[cl]?dots|\?+|_+)\s*(?:[>\])]\s*)?\}{1,2}",
    re.IGNORECASE,
)
_TRAILING = ".,;:!?)*"
# Maximum number of directly nested boxes to remove
_MAX_NESTED_BOXES = 4


class Box(NamedTuple):
    """A complete box."""

    start: int
    """Index of its command in the text."""
    end: int
    """Index of the first character after it."""
    content: slice
    """The slice of the text inside it; texts are cut out only where needed, since boxes can be nested a thousand
    deep."""


class _Open(NamedTuple):
    """A brace that has not been closed."""

    content: int
    box: int | None
    """Index of the command of the box that the brace opens; None: it opens no box."""


def boxes(text: str) -> list[Box]:
    r"""Return the outermost complete boxes of a text whose last box is complete; otherwise none.

    Braces escaped as `\{` do not count. A box without braces holds the word that follows on its line (`\boxed 5`). A
    box that is never closed is unfinished: if no complete box follows, the text was cut off within its last answer, and
    no box counts. Takes time linear in the text's length.
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
    # A box that is open at the end was cut off, like all braces around it.
    unfinished = max([unfinished, *(brace.box for brace in stack if brace.box is not None)])
    return found if found and unfinished < found[-1].end else []


def without_placeholders(text: str) -> str:
    r"""Return a text without placeholder boxes such as `\boxed{ANSWER}`."""
    return _PLACEHOLDER.sub(" ", text)


def last_boxed(text: str) -> str | None:
    """Return the content of the last box, without boxes that enclose all of it; None without a box (see `boxes`)."""
    found = boxes(text)
    if not found:
        return None
    return unboxed(text[found[-1].content])


def unboxed(content: str) -> str:
    """Return a box's content without inner boxes that enclose all of it."""
    content = content.strip()
    for _ in range(_MAX_NESTED_BOXES - 1):
        inner = boxes(content)
        if len(inner) != 1 or (inner[0].start, inner[0].end) != (0, len(content)):
            break
        content = content[inner[0].content].strip()
    return content


def last_list_of_boxes(text: str, found: Sequence[Box]) -> Sequence[Box]:
    """Return the last boxes of `found` that only "and" or commas separate in the text."""
    first = len(found) - 1
    while first > 0 and _AND.fullmatch(text, found[first - 1].end, found[first].start):
        first -= 1
    return found[first:]


def has_alternatives(text: str) -> bool:
    r"""Return whether a text ends in two boxes with different answers and only "or" between them."""
    if len(last_two := boxes(text)[-2:]) < 2:
        return False
    first, second = last_two
    return bool(_OR.fullmatch(text, first.end, second.start)) and text[first.content] != text[second.content]


def is_in_form(text: str) -> bool:
    """Return whether a text has the requested form: one complete box, and no letter or digit after it."""
    found = boxes(text)
    return len(found) == 1 and not any(character.isalnum() for character in text[found[0].end :])

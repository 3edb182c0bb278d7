"""Reading what models write around their answers: fenced blocks and scores."""

import math
import re
from typing import NamedTuple

_MARK = r"(?:`{3,}+|~{3,}+)"
_FENCE = re.compile(
    rf"""
      (?: ^[ \t]*+ | (?<![`~]) ) {_MARK} (?P<whole>[^`~\n]++) {_MARK} [ \t.]*$
    | ^[ \t]*+ {_MARK} [^\n]*$
    | (?<![`~]) {_MARK} [ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)
"""A whole block that a line ends with, a fence that a line begins with, or one that it ends with."""

_GAP = r"[\s*_]{0,6}"
"""Blanks and what makes numbers bold."""
_HUNDRED = r"100(?:\.0+)?(?!\.?\d)"
_SCALE = re.compile(
    rf"""
      / {_GAP} {_HUNDRED}  # 85/100
    | \b out {_GAP} of {_GAP} (?:(?:an?|the)\s)? (?:(?:possible|maximum|total)\s)? (?:of\s)? {_GAP} {_HUNDRED}
    | (?: (?<=[\d%]) | (?<=\d\*\*) ) \s{{1,3}} (?:points?\s|marks?\s)? of {_GAP} {_HUNDRED}  # 85 of 100
    | \b (?: scale \s of | max (?:imum)? \s? [:=]? ) {_GAP} {_HUNDRED}
    | (?<![\w.,]) (?:[01](?:\.0+)?|zero) {_GAP} (?:to|and|[-\u2013\u2014,]|\.{{2,3}}) {_GAP} {_HUNDRED}  # 0 to 100
    | (?<![\w.]) {_HUNDRED} {_GAP} -? {_GAP} point\s+(?:scale|system)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Mentions of the scale that a score lies on. "A score of 100" is none: `of 100` counts behind a number alone."""
_NUMBER = re.compile(
    r"""
    (?<![^\W_]) (?<!\d\.)
    [-\u2212]? (?: (?<!\d,) \d{1,3},\d{1,2} (?!,?\d) | \d{1,30} (?:\.\d{1,30})? (?:e[-+]?\d{1,3})? )
    (?! [^\W_] | \.\d)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A decimal number, with a point or (one or two places) a comma, maybe with an exponent."""


class Block(NamedTuple):
    """A fenced block and the text before it."""

    before: str
    content: str


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a text, in order; one that is never closed goes on to the end.

    A block can stand on one line, which it ends, and its fences can stand at the end of other lines. Takes time linear
    in the text's length.
    """
    found: list[Block] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is not None:
            found.append(_block(text, opening, fence.start()))
            opening = None
        elif fence["whole"] is not None:
            found.append(Block(text[: fence.start()].strip(), fence["whole"].strip()))
        else:
            opening = fence
    return found if opening is None else [*found, _block(text, opening, len(text))]


def last_block(text: str) -> Block | None:
    """Return the last fenced block; None without any."""
    found = blocks(text)
    return found[-1] if found else None


def fenced(content: str) -> str:
    """Return a content in a fenced block."""
    return f"```\n{content}\n```"


def last_score(text: str) -> float | None:
    """Return the last decimal number in a text that does not name the scale (`/100`, `0 to 100`); None without any.

    Takes time linear in the text's length.
    """
    found = _NUMBER.findall(_SCALE.sub(" ", text))
    number = float(found[-1].replace(",", ".").replace("\u2212", "-")) if found else math.nan
    return number if math.isfinite(number) else None


def _block(text: str, opening: re.Match[str], end: int) -> Block:
    return Block(text[: opening.start()].strip(), text[opening.end() : end].strip())

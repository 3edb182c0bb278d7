"""Parses fenced blocks in models' texts."""

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

_MARK = r"(?:`{3,}+|~{3,}+)"
# A whole block that a line ends with, a fence that a line begins with, or one that it ends with
_FENCE = re.compile(
    rf"""
      (?: ^[ \t]*+ | (?<![`~]) ) {_MARK} (?P<whole>[^`~\n]++) {_MARK} [ \t.]*$
    | ^[ \t]*+ {_MARK} [^\n]*$
    | (?<![`~]) {_MARK} [ \t]*$
    """,
    re.MULTILINE | re.VERBOSE,
)


class Block(NamedTuple):
    """A fenced block."""

    start: int
    """Index of its opening fence in the text."""
    content: str
    end: int
    """Index of the first character after its closing fence."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text in order; an unclosed block extends to the end.

    A block may be on a single line, which it ends, and its fences may end other lines. Takes linear time.
    """
    opening: re.Match[str] | None = None
    # Fences are paired in order; an unpaired last one opens a block that the token limit cut off.
    for fence in _FENCE.finditer(text):
        if opening is not None:
            yield _block(text, opening, fence.start(), fence.end())
            opening = None
        elif fence["whole"] is not None:
            yield Block(fence.start(), fence["whole"].strip(), fence.end())
        else:
            opening = fence
    if opening is not None:
        yield _block(text, opening, len(text), len(text))


def last_block(text: str) -> Block | None:
    """Return the last fenced block; None if there is none."""
    last = deque(blocks(text), maxlen=1)
    return last.pop() if last else None


def fence(content: str) -> str:
    """Put a text into a fenced block."""
    return f"```\n{content}\n```"


def _block(text: str, opening: re.Match[str], closing: int, end: int) -> Block:
    return Block(opening.start(), text[opening.end() : closing].strip(), end)

"""Reading what models write around their answers: fenced blocks."""

import re
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
    # Fences are paired in order, an odd one at the end opens a block that the token limit has cut off.
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


def _block(text: str, opening: re.Match[str], end: int) -> Block:
    return Block(text[: opening.start()].strip(), text[opening.end() : end].strip())

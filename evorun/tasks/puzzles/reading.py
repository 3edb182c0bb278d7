"""Reading what models write around their answers: fenced blocks and numbers."""

import math
import re
from typing import NamedTuple

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,30}(?:\.\d{1,30})?(?![\w]|\.\d)")


class Block(NamedTuple):
    """A fenced block and the text before it."""

    before: str
    content: str
    label: str
    """What stands behind the opening fence: a language, say."""


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a text, in order; one that is never closed goes on to the end."""
    fences = list(_FENCE.finditer(text))
    found = []
    for place in range(0, len(fences), 2):
        opening = fences[place]
        end = fences[place + 1].start() if place + 1 < len(fences) else len(text)
        label = opening.group().strip().lstrip("`~").strip()
        found.append(Block(text[: opening.start()].strip(), text[opening.end() : end].strip(), label))
    return found


def last_block(text: str) -> Block | None:
    """Return the last fenced block; None without any."""
    found = blocks(text)
    return found[-1] if found else None


def fenced(content: str) -> str:
    """Return a content in a fenced block."""
    return f"```\n{content}\n```"


def last_number(text: str) -> float | None:
    """Return the last decimal number in a text; None without any."""
    found = _NUMBER.findall(text)
    number = float(found[-1]) if found else math.nan
    return number if math.isfinite(number) else None

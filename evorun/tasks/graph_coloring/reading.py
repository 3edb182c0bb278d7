"""Reading colourings and lists of errors as models write them."""

import re
from collections.abc import Sequence
from typing import Any

from evorun.tasks.graph_coloring.graph import as_text
from evorun.tasks.graph_coloring.operators import EXCESS

# Longest colour that is read; a colour out of range is an error of the answer, not of its form
_DIGITS = 6
_BETWEEN = re.compile(r"\s*,\s*|\s+")


def read_answer(block: str, vertices: int) -> str:
    """Return the colouring in canonical form; commas or blanks stand between colours, and no brackets around them.

    Raises ValueError, saying what was expected, for another count or for anything that is not a colour.
    """
    words = _BETWEEN.split(block.strip())
    wrong = next((word for word in words if not _is_number(word)), None)
    if wrong is not None:
        raise ValueError(f"expected colours such as 0,1,2, got '{wrong[:20]}'")
    if len(words) != vertices:
        raise ValueError(f"expected {vertices} colours, one for each vertex, got {len(words)}")
    return as_text([int(word) for word in words])


def describe(findings: Sequence[Sequence[Any]]) -> str:
    """Return errors one a line: `u,v,colour` for a conflict, `excess n` for colours that are not allowed."""
    return "\n".join(f"{EXCESS} {f[1]}" if f[0] == EXCESS else f"{f[0]},{f[1]},{f[2]}" for f in findings)


def read_findings(block: str, vertices: int) -> tuple[list[Any], ...] | None:
    """Return the errors of a text in the form of `describe`, the excess first and a repeated conflict once.

    None for a line of another form and for vertices that the graph has not. Whether the errors are real is not asked.
    """
    over, conflicts = 0, dict[tuple[int, int], int]()
    for line in block.lower().split("\n"):
        words = _BETWEEN.split(line.strip())
        if words == [""]:
            continue
        if words[0].rstrip(":") == EXCESS:
            if len(words) != 2 or not _is_number(words[1].removeprefix("-")):
                return None
            over = max(over, int(words[1]))
            continue
        if len(words) != 3 or not all(map(_is_number, words)):
            return None
        u, v, color = map(int, words)
        if u == v or max(u, v) >= vertices:
            return None
        conflicts.setdefault((min(u, v), max(u, v)), color)
    named = [[u, v, color] for (u, v), color in conflicts.items()]
    return ([EXCESS, over], *named) if over else tuple(named)


def _is_number(word: str) -> bool:
    return 1 <= len(word) <= _DIGITS and word.isascii() and word.isdigit()

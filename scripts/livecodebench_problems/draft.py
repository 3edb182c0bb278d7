"""A sample problem before its tests are made."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple


class Draft(NamedTuple):
    """A problem with starter code when `method` is given, else one for a script."""

    title: str
    statement: str
    examples: list[Any]
    """Inputs of the public tests: texts for a script, tuples of arguments for a method."""
    generate: Callable[[Random], Any]
    """Draws the input of a hidden test, of the same form."""
    right: str
    wrong: str
    """A program that passes every public test and fails a hidden one."""
    method: str = ""
    """Name, parameters and result, as in `total(self, values: List[int]) -> int`."""


def lines(*rows: object) -> str:
    """Return rows of values as an input text: a list or tuple is one line of values with blanks between them."""
    return "".join(" ".join(map(str, row)) + "\n" if isinstance(row, list | tuple) else f"{row}\n" for row in rows)


def some(r: Random, low: int, high: int, count: int) -> list[int]:
    """Draw `count` integers from [low, high]."""
    return [r.randint(low, high) for _ in range(count)]

"""The drafts of questions that each kind yields, and the formatting of their numbers."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple

Number = int | Fraction


class Draft(NamedTuple):
    """A question with its right answer and the answers that typical mistakes lead to, the likeliest mistake first."""

    question: str
    answer: str
    mistakes: list[str]


Kind = Callable[[Random], Draft | None]
"""Draws one question of its kind, or None when the numbers drawn do not work out."""


def draft(question: str, answer: Number, mistakes: Sequence[Number], unit: str = "") -> Draft:
    """Build a draft whose numbers are written as integers or as fractions in lowest terms."""
    return Draft(question, written(answer, unit), [written(mistake, unit) for mistake in mistakes if mistake > 0])


def written(number: Number, unit: str = "") -> str:
    """Write a number: `7`, `7/12`, `7 km`."""
    value = Fraction(number)
    text = str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return f"{text} {unit}" if unit else text

"""Answers of several degrees, from the worst known one to the right one, and how often a simulated model gives each."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

PARTS = 8
"""Parts of an answer, each of which is right with the same probability (ours)."""
_CHANCES = np.linspace(0, 1, 513)
_RIGHT = np.arange(PARTS + 1)
# Row: the probability that a part is right; column: the probability of that many right parts.
_BINOMIAL = (
    np.array([math.comb(PARTS, right) for right in _RIGHT.tolist()])
    * _CHANCES[:, np.newaxis] ** _RIGHT
    * (1 - _CHANCES[:, np.newaxis]) ** (PARTS - _RIGHT)
)


class Scale(Struct, dict=True):
    """The values of a problem's known answers, and the worst and the best of them."""

    worst: float
    best: float
    values: Mapping[str, float]

    def share(self, value: float) -> float:
        """Return how far a value is on the way from the worst to the best, in [0, 1]; 0 unless it is finite."""
        if not math.isfinite(value) or self.worst == self.best:
            return 0.0
        return min(1.0, max(0.0, (value - self.worst) / (self.best - self.worst)))

    @cached_property
    def answers(self) -> Sequence[Sequence[str]]:
        """The answers with 0, 1, ..., `PARTS` right parts: those whose share is nearest to that of the parts.

        With all parts right, only the nearest count; else also those up to half a part further away.
        """
        groups = list[Sequence[str]]()
        for right in range(PARTS + 1):
            distance = {answer: abs(self.share(value) - right / PARTS) for answer, value in self.values.items()}
            limit = min(distance.values()) + (0 if right == PARTS else 1 / (2 * PARTS))
            groups.append([answer for answer, its_distance in distance.items() if its_distance <= limit])
        return groups

    @cached_property
    def means(self) -> Sequence[float]:
        """The mean share of each group of `answers`, in ascending order."""
        return [float(np.mean([self.share(self.values[answer]) for answer in group])) for group in self.answers]

    def find_chance(self, mean: float) -> float:
        """Return the probability of a right part at which answers have this mean share, as far as they can."""
        return float(np.interp(mean, _BINOMIAL @ self.means, _CHANCES))


def interpolate(gold: str, other: str) -> list[str]:
    """Return answers between another answer and the right one, in steps of an eighth, the other answer first.

    Between numbers lie numbers. Other texts join the right one's beginning and the other's end, cut between lines,
    words or characters: the first unit of which the right answer has several.
    """
    if (numbers := _numbers(gold, other)) is not None:
        right, wrong = numbers
        decimals = len(gold.partition(".")[2])
        return [f"{wrong + (right - wrong) * part / PARTS:.{decimals}f}" for part in range(PARTS)]
    split: Callable[[str], list[str]] = next((unit for unit in (_lines, _words) if len(unit(gold)) > 1), list)
    pieces, others = split(gold), split(other)
    cuts = [len(pieces) * part // PARTS for part in range(PARTS)]
    return ["".join([*pieces[:cut], *others[cut:]]) for cut in cuts]


def _numbers(*texts: str) -> list[float] | None:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _words(text: str) -> list[str]:
    *words, last = text.split(" ")
    return [f"{word} " for word in words] + [last]

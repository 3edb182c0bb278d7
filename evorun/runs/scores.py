"""The scores that a task declares for its responses, of which right or wrong is one."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from evorun.runs.candidates import Outcome


class Graded(Protocol):
    """A grade, or a record that carries one."""

    @property
    def correct(self) -> bool | None:
        """None where there is no right and wrong."""
        ...

    @property
    def scores(self) -> Mapping[str, float | None]:
        """Values by name, without that of `accuracy`, which is `correct`."""
        ...


class Score(msgspec.Struct, frozen=True):
    """A figure that a task gives each response; a task declares its own, the primary one first."""

    name: str
    low: float | None = None
    """Minimum value, as `high` is the maximum; None: no bound."""
    high: float | None = None
    higher_is_better: bool = True
    rate: bool = False
    """A response is right (1) or wrong (0), so that the mean is a share of responses."""
    label: str | msgspec.UnsetType = msgspec.UNSET
    """Its label in tables and figures; unset: its name as words."""

    @property
    def shown_name(self) -> str:
        """The label, else the name."""
        return self.name if self.label is msgspec.UNSET else self.label

    @property
    def is_correctness(self) -> bool:
        """True when its value is a grade's `correct`."""
        return self.name == "accuracy"

    def value_in(self, graded: Graded) -> float | None:
        """Return the score's value in a grade; None where the task could not give one."""
        if self.is_correctness:
            return None if graded.correct is None else float(graded.correct)
        # JSON has no NaN or infinity, so a grader's count as no value
        value = graded.scores.get(self.name)
        return value if value is not None and math.isfinite(value) else None

    def utility(self, value: float) -> float:
        """Return a value that is higher for better responses: from 0 (worst) to 1 where both bounds are known.

        An unbounded score stays as it is, negated where lower is better.
        """
        if self.low is None or self.high is None or self.low == self.high:
            return value if self.higher_is_better else -value
        distance = value - self.low if self.higher_is_better else self.high - value
        return distance / (self.high - self.low)

    def from_utility(self, utility: float) -> float:
        """Return the value of this utility: the inverse of `utility`."""
        if self.low is None or self.high is None or self.low == self.high:
            return utility if self.higher_is_better else -utility
        distance = utility * (self.high - self.low)
        return self.low + distance if self.higher_is_better else self.high - distance


ACCURACY = Score("accuracy", 0.0, 1.0, rate=True)
"""The score of tasks with right and wrong: its value is a grade's `correct`."""


def find_violation(declared: Sequence[Score], graded: Graded) -> str | None:
    """Return a message if a grade violates the declared scores, else None.

    Undeclared scores are accepted, unless a declared one is missing: then the name is presumably wrong.
    """
    by_name = {score.name: score for score in declared}
    missing = [name for name in by_name if name not in graded.scores and name != ACCURACY.name]
    stray = [name for name in graded.scores if name not in by_name]
    if missing and stray:
        return f"expected a score named '{missing[0]}', got '{stray[0]}'"
    for name, value in graded.scores.items():
        if not isinstance(value, int | float | None):
            return f"expected a number as the score '{name}', got {value!r:.60}"
        score = by_name.get(name)
        if score is None or value is None or not math.isfinite(value):
            continue
        slack = 1e-9 * max(1.0, abs(value))  # of rounding
        low, high = (-math.inf if score.low is None else score.low), (math.inf if score.high is None else score.high)
        if not low - slack <= value <= high + slack:
            return f"expected the score '{name}' from {low:g} to {high:g}, got {value:g}"
    return None


def find_better(first: float | None, second: float | None) -> Outcome | None:
    """Return the side with the higher utility; None where they are equal, or one is unknown.

    Between two equally good candidates either winner is right, which says nothing about a judge.
    """
    if first is None or second is None or first == second:
        return None
    return "first" if first > second else "second"


def primary_score(scores: Sequence[Score]) -> Score:
    """Return the score that compares two responses: right and wrong where a task has them, else its primary score."""
    return next((score for score in scores if score.is_correctness), scores[0])


def mean_of_samples(primary: Score) -> Score:
    """Return the score of a problem that is the mean of the primary one over several samples."""
    # not a rate: each problem's value is a share already, so its mean has no binomial interval
    name = "pass_rate" if primary.is_correctness else f"mean_{primary.name}"
    label = msgspec.UNSET if primary.label is msgspec.UNSET else f"mean {primary.label}"
    return Score(name, primary.low, primary.high, primary.higher_is_better, label=label)

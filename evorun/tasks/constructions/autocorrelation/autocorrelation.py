"""Upper bounds of the constant in the first autocorrelation inequality: the lower, the better.

The constant C is the largest for which every non-negative function f, zero outside [-1/4, 1/4], satisfies
max over t of (f * f)(t) >= C (integral of f)^2. Each function gives an upper bound of C: its own ratio of the two
sides. Problem B.1 of the AlphaEvolve paper (arXiv 2506.13131); C is at least 1.28 (arXiv 1403.7988).

For a step function of n equal steps with heights a, f * f is linear between its nodes, where it is 1/(2n) times the
convolution of a with itself. So the ratio is exactly 2n max(a * a) / (sum of a)^2, computed to about 12 digits.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from evorun.runs.scores import Score
from evorun.runs.streams import stream
from evorun.sandbox.base import Limits
from evorun.tasks.base import Problem
from evorun.tasks.constructions.construction import VALID, Construction, ConstructionConfig, read_number
from evorun.tasks.constructions.ladder import even_scores

LOWER_BOUND = 1.28
"""Proven: no function has a lower ratio (Cloninger and Steinerberger, arXiv 1403.7988)."""
WORST = 4.0
"""Ratio of every response that is no better (ours): twice that of a constant function."""
_BOUND = Score("autocorrelation_bound", LOWER_BOUND, WORST, higher_is_better=False)
# Steps of the simulated model's functions, and changes of one height that its best one took (ours)
_STEPS = 30
_CHANGES = 3000
# Ratio of the seed program's heights
_SEED_BOUND = 2.106
_BYTES_PER_HEIGHT = 32


class Autocorrelation(Construction):
    """Asks for the heights of a step function."""

    name = "autocorrelation"
    scores = (_BOUND, VALID)
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Construction.prompt_folders)
    object_name = "a step function"

    def measure(self, problem: Problem, value: Any) -> float:
        """Return the upper bound that a list of heights gives, at most `WORST`."""
        longest = problem.data["max_steps"]
        if not isinstance(value, list) or not 1 <= len(value) <= longest:
            found = f"{len(value)} of them" if isinstance(value, list) else type(value).__name__
            raise ValueError(f"expected a list of 1 to {longest} heights, got {found}")
        heights = [read_number(height, f"height {index}") for index, height in enumerate(value)]
        if min(heights) < 0 or max(heights) == 0:
            raise ValueError(f"expected heights of at least 0, not all 0, got one of {min(heights):g}")
        return min(WORST, bound([height / max(heights) for height in heights]))

    def worst(self, problem: Problem) -> float:
        return WORST

    def degree(self, problem: Problem, value: float) -> float:
        return _BOUND.utility(value)

    def seed_degree(self, problem: Problem) -> float:
        return _BOUND.utility(_SEED_BOUND)

    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        return climb()

    def random_object(self, problem: Problem, rng: np.random.Generator) -> Any:
        return _round(_draw_heights(rng, min(_STEPS, problem.data["max_steps"])))


def bound(heights: Sequence[float]) -> float:
    """Return the ratio of a step function with heights in [0, 1], the largest of which is 1."""
    total = math.fsum(heights)
    return 2 * len(heights) * float(np.convolve(heights, heights).max()) / total**2


@cache
def climb() -> Sequence[Sequence[float]]:
    """Return heights from random ones on, each after further changes of one height that lowered the bound.

    The first ones are a little worse than the seed program's.
    """
    rng = stream(0, "step functions")
    heights = _draw_heights(rng, _STEPS)
    found = [(_degree(heights), _round(heights))]
    for _ in range(_CHANGES):
        changed = heights.copy()
        changed[int(rng.integers(_STEPS))] *= float(rng.lognormal(0, 0.4))
        if (degree := _degree(changed)) > found[-1][0]:
            heights = changed
            found.append((degree, _round(heights)))
    degrees = [degree for degree, _ in found]
    places = [bisect_left(degrees, wanted) for wanted in even_scores(_BOUND.utility(_SEED_BOUND), degrees[-1])]
    return [found[place][1] for place in dict.fromkeys(places)]


def _degree(heights: Any) -> float:
    return _BOUND.utility(min(WORST, bound(_round(heights))))


def _draw_heights(rng: np.random.Generator, steps: int) -> Any:
    return rng.lognormal(0, 1.2, steps)


def _round(heights: Any) -> list[float]:
    """Return the heights, the largest of them 1, to four decimals."""
    rounded: list[float] = np.round(heights / heights.max(), 4).tolist()
    return rounded


@dataclass(kw_only=True)
class AutocorrelationConfig(ConstructionConfig):
    """Step functions for the first autocorrelation inequality (AlphaEvolve, B.1)."""

    task_class = Autocorrelation

    max_steps: Annotated[int, Meta(ge=1, le=8192)]
    """Maximum number of steps of a function."""

    @property
    def output_kib(self) -> int:
        return 64 + self.max_steps * _BYTES_PER_HEIGHT // 1024

    def make_problems(self) -> Sequence[Problem]:
        data = {"max_steps": self.max_steps, "arguments": []}
        return [Problem(id="first_inequality", stratum="first_inequality", data=data)]

    def make_task(self, limits: Limits) -> Autocorrelation:
        return Autocorrelation(limits, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

"""Upper bounds of the constant in the first autocorrelation inequality: the lower, the better.

The constant C is the largest for which every non-negative function f, zero outside [-1/4, 1/4], satisfies
max over t of (f * f)(t) >= C (integral of f)^2. Each function gives an upper bound of C: its own ratio of the two
sides. Problem B.1 of the AlphaEvolve paper (arXiv 2506.13131); C is at least 1.28 (arXiv 1403.7988).

For a step function of n equal steps with heights a, f * f is linear between its nodes, where it is 1/(2n) times the
convolution of a with itself. So the ratio is exactly 2n max(a * a) / (sum of a)^2, computed to about 12 digits.
"""

import math
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
from evorun.tasks.constructions.ladder import RUNGS

LOWER_BOUND = 1.28
"""Proven: no function has a lower ratio (Cloninger and Steinerberger, arXiv 1403.7988)."""
WORST = 4.0
"""Ratio of every response that is no better (ours): twice that of a constant function."""
_BOUND = Score("autocorrelation_bound", LOWER_BOUND, WORST, higher_is_better=False)
# Steps of the simulated model's functions, and changes of one height between two rungs of its ladder (ours)
_STEPS = 30
_CHANGES = 60
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

    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        return climb()


def bound(heights: Sequence[float]) -> float:
    """Return the ratio of a step function with heights in [0, 1], the largest of which is 1."""
    total = math.fsum(heights)
    return 2 * len(heights) * float(np.convolve(heights, heights).max()) / total**2


@cache
def climb() -> Sequence[Sequence[float]]:
    """Return heights from random ones on, each after further changes of one height that lowered the bound."""
    rng = stream(0, "step functions")
    heights = rng.lognormal(0, 1.2, _STEPS)
    ladder = []
    for _ in range(RUNGS):
        ladder.append(np.round(heights / heights.max(), 4).tolist())
        for _ in range(_CHANGES):
            changed = heights.copy()
            changed[int(rng.integers(_STEPS))] *= float(rng.lognormal(0, 0.4))
            if bound((changed / changed.max()).tolist()) < bound((heights / heights.max()).tolist()):
                heights = changed
    return ladder


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

"""Circles of any radii in the unit square, without overlaps: the greater the sum of their radii, the better.

Problem B.12 of the AlphaEvolve paper (arXiv 2506.13131). Validation is exact: coordinates and radii are the rational
numbers that their floating-point values stand for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from evorun.errors import ConfigError
from evorun.runs.scores import Score
from evorun.runs.streams import stream
from evorun.sandbox.base import Limits
from evorun.tasks.base import Problem
from evorun.tasks.constructions.construction import VALID, Construction, ConstructionConfig, read_number
from evorun.tasks.constructions.ladder import RUNGS

# Moves of one centre between two rungs of the simulated model's ladder (ours)
_MOVES = 120
# What rounding a centre and a radius to six decimals can add to an overlap
_ROUNDING = 4e-6


class CirclePacking(Construction):
    """Packs `circles` circles, given as triples of x, y and radius."""

    name = "circle_packing"
    scores = (Score("sum_of_radii", 0, None), VALID)
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Construction.prompt_folders)
    object_name = "a packing"

    def __init__(
        self,
        limits: Limits,
        *,
        tolerance: float = 0.0,
        prompts: str | None = None,
        shown_reasoning_chars: int | None = None,
    ) -> None:
        """tolerance: distance by which circles may overlap, or leave the square. Others: see `Construction`."""
        super().__init__(limits, prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self._tolerance = Fraction(tolerance)

    def measure(self, problem: Problem, value: Any) -> float:
        """Return the sum of the radii."""
        count, slack = problem.data["circles"], self._tolerance
        if not isinstance(value, list) or len(value) != count:
            raise ValueError(f"expected a list of {count} circles, got {_size(value)}")
        circles: list[tuple[Fraction, Fraction, Fraction]] = []
        for index, circle in enumerate(value):
            if not isinstance(circle, list) or len(circle) != 3:
                raise ValueError(f"circle {index}: expected [x, y, radius], got {circle!r:.60}")
            x, y, r = (Fraction(read_number(number, f"circle {index}")) for number in circle)
            if r < 0:
                raise ValueError(f"circle {index}: expected a radius of at least 0, got {float(r):g}")
            outside = r - min(x, y, 1 - x, 1 - y)
            if outside > slack:
                raise ValueError(f"circle {index} leaves the square by {float(outside):.3g}")
            for other, (x2, y2, r2) in enumerate(circles):
                reach = r + r2 - slack
                if reach > 0 and (x - x2) ** 2 + (y - y2) ** 2 < reach**2:
                    gap = float(r + r2) - math.hypot(float(x - x2), float(y - y2))
                    raise ValueError(f"circles {other} and {index} overlap by {gap:.3g}")
            circles.append((x, y, r))
        return math.fsum(float(r) for _, _, r in circles)

    def worst(self, problem: Problem) -> float:
        return 0.0

    def degree(self, problem: Problem, value: float) -> float:
        """Return the share of sqrt(n / pi): equal radii of circles that cover the square would have this sum."""
        # The radii's sum is at most sqrt(n times the sum of their squares), and the circles' area is at most 1.
        return min(1.0, value / math.sqrt(problem.data["circles"] / math.pi))

    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        return climb(problem.data["circles"])


def _size(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


@cache
def climb(count: int) -> Sequence[Sequence[Sequence[float]]]:
    """Return packings from random centres on, each after further moves of one centre that made it better."""
    rng = stream(0, "circle packings", str(count))
    centres = rng.random((count, 2))
    radii, ladder = _largest_radii(centres), []
    for rung in range(RUNGS):
        rounded = np.maximum(0, np.round(radii - _ROUNDING, 6))
        ladder.append(np.column_stack([np.round(centres, 6), rounded]).tolist())
        for _ in range(_MOVES):
            moved = centres.copy()
            index = int(rng.integers(count))
            moved[index] = np.clip(moved[index] + rng.normal(0, 0.15 * (1 - rung / RUNGS) ** 2 + 0.004, 2), 0.02, 0.98)
            better = _largest_radii(moved)
            if better.sum() > radii.sum():
                centres, radii = moved, better
    return ladder


def _largest_radii(centres: Any) -> Any:
    """Return radii that touch the nearest wall, or meet half-way with the nearest other circle."""
    apart = np.hypot(*(centres[:, None] - centres).T)
    np.fill_diagonal(apart, np.inf)
    return np.minimum(apart.min(axis=1) / 2, np.minimum(centres, 1 - centres).min(axis=1))


@dataclass(kw_only=True)
class CirclePackingConfig(ConstructionConfig):
    """Circles in the unit square (AlphaEvolve, B.12)."""

    task_class = CirclePacking

    circles: list[int]
    """Number of circles of each problem, from 1 to 200."""
    tolerance: Annotated[float, Meta(ge=0, le=1e-3)]
    """Distance by which circles may overlap, or leave the square; 0: exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.circles or len({*self.circles}) < len(self.circles) or not all(0 < n <= 200 for n in self.circles):
            raise ConfigError(f"task.circles: expected different numbers from 1 to 200, got {list(self.circles)}")

    def make_problems(self) -> Sequence[Problem]:
        return [
            Problem(id=f"circles_{n}", stratum=f"circles_{n}", data={"circles": n, "arguments": [n]})
            for n in self.circles
        ]

    def make_task(self, limits: Limits) -> CirclePacking:
        shown = self.shown_reasoning_chars
        return CirclePacking(limits, tolerance=self.tolerance, prompts=self.prompts, shown_reasoning_chars=shown)

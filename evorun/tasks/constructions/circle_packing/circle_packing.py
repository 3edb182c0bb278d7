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
from evorun.tasks.constructions.ladder import even_scores

# Steps to the simulated model's best packing (ours)
_STEPS = 500
# What rounding a centre and a radius to six decimals can add to an overlap
_ROUNDING = 4e-6
# A gap that floating-point numbers show beyond doubt: in the unit square their errors stay below 1e-14 (ours)
_CLEAR_GAP = 1e-9


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
        rounded: list[tuple[float, float, float]] = []
        for index, circle in enumerate(value):
            if not isinstance(circle, list) or len(circle) != 3:
                raise ValueError(f"circle {index}: expected [x, y, radius], got {circle!r:.60}")
            x, y, r = (Fraction(read_number(number, f"circle {index}")) for number in circle)
            if r < 0:
                raise ValueError(f"circle {index}: expected a radius of at least 0, got {float(r):g}")
            outside = r - min(x, y, 1 - x, 1 - y)
            if outside > slack:
                raise ValueError(f"circle {index} leaves the square by {float(outside):.3g}")
            fx, fy, fr = float(x), float(y), float(r)
            for other, (x2, y2, r2) in enumerate(circles):
                fx2, fy2, fr2 = rounded[other]
                overlap = fr + fr2 - math.hypot(fx - fx2, fy - fy2)
                if overlap < -_CLEAR_GAP:  # exact numbers take a hundred times as long
                    continue
                reach = r + r2 - slack
                if reach > 0 and (x - x2) ** 2 + (y - y2) ** 2 < reach**2:
                    raise ValueError(f"circles {other} and {index} overlap by {overlap:.3g}")
            circles.append((x, y, r))
            rounded.append((fx, fy, fr))
        return math.fsum(r for _, _, r in rounded)

    def worst(self, problem: Problem) -> float:
        return 0.0

    def degree(self, problem: Problem, value: float) -> float:
        """Return the share of sqrt(n / pi): equal radii of circles that cover the square would have this sum."""
        # The radii's sum is at most sqrt(n times the sum of their squares), and the circles' area is at most 1.
        return min(1.0, value / math.sqrt(problem.data["circles"] / math.pi))

    def seed_degree(self, problem: Problem) -> float:
        return self.degree(problem, _sum_in_rows(problem.data["circles"]))

    def make_ladder(self, problem: Problem) -> Sequence[Any]:
        return climb(problem.data["circles"])

    def random_object(self, problem: Problem, rng: np.random.Generator) -> Any:
        circles = rng.random((problem.data["circles"], 3))
        return _list_circles(circles, _largest_radii(circles))


def _size(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _sum_in_rows(count: int) -> float:
    """Return the sum of radii of equal circles in rows and columns, as many of either."""
    return count * 0.5 / math.ceil(math.sqrt(count))


@cache
def climb(count: int) -> Sequence[Sequence[Sequence[float]]]:
    """Return ever better packings, on the way from random circles to a local optimum of the sum of radii.

    The way is gradient ascent (Adam, arXiv 1412.6980), with a penalty on overlaps that grows. Each packing is the first
    that reaches a score, with radii that are so much smaller that it has exactly this score.
    """
    rng = stream(0, "circle packings", str(count))
    circles = np.column_stack([rng.random((count, 2)), np.full(count, 0.1 / math.sqrt(count))])
    mean, square, found = np.zeros_like(circles), np.zeros_like(circles), list[Any]()
    for done in np.linspace(0, 1, _STEPS, endpoint=False).tolist():
        slope = _slope(circles, penalty=4 * 1000**done)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        circles = np.clip(circles + 0.02 * (1 - done) * mean / np.sqrt(square + 1e-12), 0.001, 0.999)
        radii = _largest_radii(circles)
        found.append((circles, radii))
    sums = np.maximum.accumulate([radii.sum() for _, radii in found])
    ladder = []
    for wanted in even_scores(_sum_in_rows(count), sums[-1]):
        circles, radii = found[int(np.searchsorted(sums, wanted))]
        ladder.append(_list_circles(circles, radii * wanted / radii.sum()))
    return ladder


def _slope(circles: Any, penalty: float) -> Any:
    """Return the gradient of the sum of radii, less half the penalty times the sum of squared overlaps."""
    centres, radii = circles[:, :2], circles[:, 2]
    apart = centres[:, None] - centres
    distance = np.hypot(*apart.T)
    np.fill_diagonal(distance, np.inf)
    overlap = np.maximum(0, radii[:, None] + radii - distance)
    below, above = np.maximum(0, radii[:, None] - centres), np.maximum(0, radii[:, None] + centres - 1)
    push = ((overlap / distance)[:, :, None] * apart).sum(axis=1) + below - above
    return np.column_stack([penalty * push, 1 - penalty * (overlap.sum(axis=1) + (below + above).sum(axis=1))])


def _largest_radii(circles: Any) -> Any:
    """Return the radii, each as much smaller as it needs so that no two circles overlap and none leaves the square."""
    centres, radii = circles[:, :2], circles[:, 2]
    distance = np.hypot(*(centres[:, None] - centres).T)
    np.fill_diagonal(distance, np.inf)
    pairs = (distance / (radii[:, None] + radii)).min(axis=1)
    walls = np.minimum(centres, 1 - centres).min(axis=1) / radii
    return radii * np.minimum(1, np.minimum(pairs, walls))


def _list_circles(circles: Any, radii: Any) -> list[list[float]]:
    """Return circles as lists of x, y and radius, to six decimals."""
    rounded = np.maximum(0, np.round(radii - _ROUNDING, 6))
    listed: list[list[float]] = np.column_stack([np.round(circles[:, :2], 6), rounded]).tolist()
    return listed


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

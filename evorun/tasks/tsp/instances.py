"""Drawing instances (Lyria paper, section 3.3), and putting them together."""

from collections.abc import Sequence

import numpy as np

from evorun.tasks.base import Problem
from evorun.tasks.puzzles.config import Instance
from evorun.tasks.tsp.routes import DECIMALS, Distances, Route, as_text

Points = list[list[float]]


def draw(cities: int, side: float, rng: np.random.Generator) -> tuple[Points, list[list[float]]]:
    """Return coordinates, uniform in a square, and their Euclidean distances to two decimals."""
    points = rng.uniform(0, side, (cities, 2))
    apart = points[:, None] - points
    distances = np.round(np.hypot(apart[..., 0], apart[..., 1]), DECIMALS)
    return points.tolist(), distances.tolist()


def make_instance(
    name: str, distances: Distances, coordinates: Sequence[Sequence[float]] | None, route: Route
) -> Instance:
    """Return an instance with a shortest route. coordinates: None where there are none."""
    data = {"cities": len(distances), "distances": distances, "coordinates": coordinates}
    problem = Problem(id=name, stratum=f"cities_{len(distances)}", data=data)
    return Instance(problem=problem, solution=as_text(route))

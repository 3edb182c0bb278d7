"""Drawing instances (Lyria paper, section 3.3)."""

import numpy as np

from evorun.tasks.tsp.routes import DECIMALS

Points = list[list[float]]


def draw(cities: int, side: float, rng: np.random.Generator) -> tuple[Points, list[list[float]]]:
    """Return coordinates, uniform in a square, and their Euclidean distances to two decimals."""
    points = rng.uniform(0, side, (cities, 2))
    apart = points[:, None] - points
    distances = np.round(np.hypot(apart[..., 0], apart[..., 1]), DECIMALS)
    return points.tolist(), distances.tolist()

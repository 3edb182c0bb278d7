"""Configuration of the task: how many cities, and where they lie."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from evorun.errors import above, within
from evorun.tasks.puzzles.config import Draft, Instance, PuzzleConfig
from evorun.tasks.tsp import files
from evorun.tasks.tsp.files import make_instance
from evorun.tasks.tsp.routes import DECIMALS, Distances, as_route, length
from evorun.tasks.tsp.simulator import TspSimulator
from evorun.tasks.tsp.solver import MOST_CITIES, optimal_route
from evorun.tasks.tsp.task import Tsp


@dataclass(kw_only=True)
class TspConfig(PuzzleConfig):
    """Travelling salesman problems in the plane (section 3.3).

    `data`: a file or folder as `files` describes; `cities` and `side` do not apply to it.
    """

    task_class = Tsp
    simulator = TspSimulator

    cities: int
    """Cities of a problem, the start included, 3 to 120. Every optimum is computed and proven:
    milliseconds up to 14 cities, tenths of a second at 30, about a second at 50, minutes for some of 76 and more."""
    side: float
    """Coordinates are uniform in [0, side]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("task.cities", self.cities, 3, MOST_CITIES)
        above("task.side", self.side, 0)
        within("task.side", self.side, 0, 1e8)

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw cities. Their distances decide the split."""
        coordinates, distances = drawn_cities(self.cities, self.side, rng)
        return Draft(msgspec.json.encode(distances), partial(_solved, coordinates, distances))

    def more_room(self) -> str:
        return "raise task.side or task.cities"

    def read_data(self, path: Path) -> Iterator[Callable[[], Instance]]:
        return files.read(path)

    def make_task(self, instances: Sequence[Instance]) -> Tsp:
        """Return the task, which knows the instances' shortest lengths."""
        optima = {i.problem.id: length(i.problem.data["distances"], as_route(i.solution)) for i in instances}
        return Tsp(optima, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)


def drawn_cities(cities: int, side: float, rng: np.random.Generator) -> tuple[list[list[float]], list[list[float]]]:
    """Return coordinates, uniform in a square, and their Euclidean distances to two decimals (section 3.3)."""
    points = rng.uniform(0, side, (cities, 2))
    apart = points[:, None] - points
    distances = np.round(np.hypot(apart[..., 0], apart[..., 1]), DECIMALS)
    return points.tolist(), distances.tolist()


def _solved(coordinates: list[list[float]], distances: Distances) -> Instance | None:
    """Return an instance; None when its cities are so close that two decimals put them in one place."""
    return make_instance("", distances, coordinates, optimal_route(distances)) if any(distances[0]) else None

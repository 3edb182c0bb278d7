"""Putting an instance together."""

from collections.abc import Sequence

from evorun.tasks.base import Problem
from evorun.tasks.puzzles.config import Instance
from evorun.tasks.tsp.routes import Distances, Route, as_text


def make_instance(
    name: str, distances: Distances, coordinates: Sequence[Sequence[float]] | None, route: Route
) -> Instance:
    """Return an instance with a shortest route. coordinates: None where there are none."""
    data = {"cities": len(distances), "distances": distances, "coordinates": coordinates}
    problem = Problem(id=name, stratum=f"cities_{len(distances)}", data=data)
    return Instance(problem=problem, solution=as_text(route))

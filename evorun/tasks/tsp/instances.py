"""Travelling salesman problems: generated with a given number of cities, or read from files.

Files are TSPLIB's .tsp, a folder of such files, or JSONL. A .tsp file has no optimum, so it is computed, for up to
`solver.MAX_CITIES` cities. JSONL: one object per line with `weights`, the full symmetric matrix; it may have `id`,
`coords` (one pair per city), `optimal_tour` (cities from 0, each once; trusted to be shortest, so any size is allowed)
and `optimum` (checked). Distances are rounded to two decimals; the matrix's diagonal is ignored.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from evorun.errors import DataError
from evorun.tasks.base import Problem
from evorun.tasks.puzzles.instances import Draft, Instance, PuzzleConfig
from evorun.tasks.tsp import tsplib
from evorun.tasks.tsp.routes import DECIMALS, Distances, Route, format_route, length, parse_route
from evorun.tasks.tsp.solver import MAX_CITIES, optimal_route
from evorun.tasks.tsp.tsp import Tsp, TspSimulator

_MAX_BYTES = 1 << 28
# Distances are below this, so that hundredths of whole routes are exact integers
_MAX_DISTANCE = 1e9


@dataclass(kw_only=True)
class TspConfig(PuzzleConfig):
    """Travelling salesman problems in the plane (section 3.3).

    `data`: a file or folder as this module describes; `cities` and `side` do not apply to it.
    """

    task_class = Tsp
    simulator = TspSimulator

    cities: Annotated[int, Meta(ge=3, le=MAX_CITIES)]
    """Cities per problem, the start included, 3 to 120. Every optimum is computed and proven:
    milliseconds up to 14 cities, tenths of a second at 30, about a second at 50, minutes for some of 76 and more."""
    side: Annotated[float, Meta(gt=0, le=100000000.0)]
    """Coordinates are uniform in [0, side]."""

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw cities. Their distances decide the split."""
        coordinates, distances = draw_cities(self.cities, self.side, rng)
        return Draft(msgspec.json.encode(distances), partial(_solve_drawn, coordinates, distances))

    def more_room(self) -> str:
        return "raise task.side or task.cities"

    def read_data(self, path: Path) -> Iterator[Callable[[], Instance]]:
        return read_instances(path)

    def make_task(self, instances: Sequence[Instance]) -> Tsp:
        """Return the task, which knows the instances' shortest lengths."""
        optima = {i.problem.id: length(i.problem.data["distances"], parse_route(i.solution)) for i in instances}
        return Tsp(optima, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)


def draw_cities(cities: int, side: float, rng: np.random.Generator) -> tuple[list[list[float]], list[list[float]]]:
    """Return coordinates, uniform in a square, and their Euclidean distances to two decimals (section 3.3)."""
    points = rng.uniform(0, side, (cities, 2))
    differences = points[:, None] - points
    distances = np.round(np.hypot(differences[..., 0], differences[..., 1]), DECIMALS)
    return points.tolist(), distances.tolist()


def _solve_drawn(coordinates: list[list[float]], distances: Distances) -> Instance | None:
    """Return an instance; None when its cities are so close that they coincide at two decimals."""
    return make_instance("", distances, coordinates, optimal_route(distances)) if any(distances[0]) else None


class Record(msgspec.Struct):
    """A line of a JSONL file; other fields are ignored."""

    weights: list[list[float]]
    id: str | None = None
    coords: list[tuple[float, float]] | None = None
    optimum: float | None = None
    optimal_tour: list[int] | None = None


class _Unsolved(NamedTuple):
    name: str
    solve: Callable[[], Instance]


def read_instances(path: Path) -> Iterator[Callable[[], Instance]]:
    """Yield, per instance, a function that solves it, in the order of lines or file names.

    Raises DataError naming file and line for an unreadable record or a repeated id; so does solving an instance that
    is too large or has a wrong `optimum`.
    """
    unsolved: Iterable[_Unsolved]
    if path.is_dir():
        unsolved = map(_from_tsplib, sorted(path.glob("*.tsp")))
    elif path.suffix == ".tsp":
        unsolved = [_from_tsplib(path)]
    elif path.suffix == ".jsonl":
        lines = enumerate(_content(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        unsolved = (_from_record(line, f"{path}:{number}", number) for number, line in lines if line.strip())
    else:
        raise DataError(f"task.data: expected a folder, or a file that ends in .tsp or .jsonl, got '{path}'")
    names: set[str] = set()
    for name, solve in unsolved:
        if name in names:
            raise DataError(f"{path}: expected different ids, got '{name}' twice")
        names.add(name)
        yield solve


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: expected a regular file")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise DataError(f"{path}: expected at most {_MAX_BYTES >> 20} MiB, got {path.stat().st_size >> 20}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error


def _from_tsplib(path: Path) -> _Unsolved:
    try:
        found = tsplib.parse(_content(path).decode("utf-8", "replace"), MAX_CITIES)
        distances = _check_matrix(found.distances)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    name = found.name or path.stem
    return _Unsolved(name, partial(_solved, name, distances, found.coordinates, str(path)))


def _from_record(line: bytes, where: str, number: int) -> _Unsolved:
    try:
        record = msgspec.json.decode(line, type=Record)
        distances = _check_matrix(record.weights)
        cities, coordinates, tour = len(distances), record.coords, record.optimal_tour
        if coordinates is not None and (len(coordinates) != cities or not np.isfinite(coordinates).all()):
            raise ValueError(f"coords: expected {cities} pairs of numbers, got {len(coordinates)}")
        if tour is not None and sorted(tour) != list(range(cities)):
            raise ValueError(f"optimal_tour: expected each of the cities 0 to {cities - 1} once")
    except ValueError as error:  # msgspec's errors are ValueErrors, too
        raise DataError(f"{where}: {error}") from error
    points = None if coordinates is None else [list(pair) for pair in coordinates]
    # A tour may begin anywhere; routes begin and end with city 0.
    start = tour.index(0) if tour else 0
    given = [*tour[start:], *tour[:start], 0] if tour else None
    name = record.id or f"line_{number:04d}"
    return _Unsolved(name, partial(_solved, name, distances, points, where, given, record.optimum))


def _solved(
    name: str,
    distances: Distances,
    coordinates: Sequence[Sequence[float]] | None,
    where: str,
    given: Route | None = None,
    optimum: float | None = None,
) -> Instance:
    """Return an instance with its shortest route, computed unless given. optimum: checked, if any."""
    if given is None and len(distances) > MAX_CITIES:
        raise DataError(
            f"{where}: expected at most {MAX_CITIES} cities, whose shortest route can be proven, got "
            f"{len(distances)}; give the record's optimal_tour"
        )
    route = given or optimal_route(distances)
    shortest = length(distances, route)
    # Each of the route's distances was rounded, by half a hundredth at most.
    if optimum is not None and not abs(shortest - optimum) <= 0.5 * 10**-DECIMALS * len(route):
        raise DataError(
            f"{where}: expected the optimum {shortest:g}, the length of the shortest route, got {optimum:g}"
        )
    return make_instance(name, distances, coordinates, route)


def _check_matrix(weights: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return a matrix rounded as in instances. Raises ValueError."""
    cities = len(weights)
    if cities < 3 or any(len(row) != cities for row in weights):
        raise ValueError(f"expected a square matrix of at least 3 cities, got {cities} rows, or rows of other lengths")
    matrix = np.round(np.array(weights, dtype=np.float64), DECIMALS)
    np.fill_diagonal(matrix, 0)
    if not ((matrix >= 0) & (matrix < _MAX_DISTANCE)).all():
        raise ValueError(f"expected distances of at least 0 and below {_MAX_DISTANCE:.0e}")
    # Compared after rounding: the prompt's numbers count.
    if (matrix != matrix.T).any():
        raise ValueError("expected a symmetric matrix: the way back must be as long as the way there")
    if not matrix.any():
        raise ValueError(f"expected distances that are not all 0 when rounded to {DECIMALS} decimals")
    found: list[list[float]] = matrix.tolist()
    return found


def make_instance(
    name: str, distances: Distances, coordinates: Sequence[Sequence[float]] | None, route: Route
) -> Instance:
    """Return an instance with a shortest route. coordinates: None where they are unknown."""
    data = {"cities": len(distances), "distances": distances, "coordinates": coordinates}
    problem = Problem(id=name, stratum=f"cities_{len(distances)}", data=data)
    return Instance(problem=problem, solution=format_route(route))

"""Instances from files: TSPLIB's .tsp, a folder of such files, and JSONL.

A .tsp file has no optimum, so it is computed; up to `solver.MOST_CITIES` cities. JSONL: an object a line with
`weights`, the full symmetric matrix; it may have `id`, `coords` (a pair a city), `optimal_tour` (cities from 0, each
once; trusted to be a shortest one, so that no size is too large) and `optimum` (checked). Distances are rounded to two
decimals, the matrix's diagonal is of no account.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from evorun.errors import DataError
from evorun.tasks.puzzles.config import Instance
from evorun.tasks.tsp import tsplib
from evorun.tasks.tsp.instances import make_instance
from evorun.tasks.tsp.routes import DECIMALS, Distances, Route, length
from evorun.tasks.tsp.solver import MOST_CITIES, optimal_route

_MOST_BYTES = 1 << 28
_LONGEST = 1e9
"""Distances are below this, so that hundredths of whole routes are exact integers."""


class Record(msgspec.Struct):
    """A line of a JSONL file; other fields are passed over."""

    weights: list[list[float]]
    id: str | None = None
    coords: list[tuple[float, float]] | None = None
    optimum: float | None = None
    optimal_tour: list[int] | None = None


class _Unsolved(NamedTuple):
    name: str
    solve: Callable[[], Instance]


def read(path: Path) -> Iterator[Callable[[], Instance]]:
    """Yield what solves the instances, one by one, in the order of lines or file names.

    Raises DataError naming file and line for what cannot be read and an id used twice; so does solving an instance that
    is too large or whose `optimum` is none.
    """
    names: set[str] = set()
    for name, solve in _instances(path):
        if name in names:
            raise DataError(f"{path}: expected different ids, got '{name}' twice")
        names.add(name)
        yield solve


def _instances(path: Path) -> Iterator[_Unsolved]:
    if path.is_dir():
        return map(_from_tsplib, sorted(path.glob("*.tsp")))
    if path.suffix == ".tsp":
        return iter([_from_tsplib(path)])
    if path.suffix == ".jsonl":
        lines = enumerate(_content(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        return (_from_record(line, f"{path}:{number}", number) for number, line in lines if line.strip())
    raise DataError(f"task.data: expected a folder, or a file that ends in .tsp or .jsonl, got '{path}'")


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: expected a regular file")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path}: expected at most {_MOST_BYTES >> 20} MiB, got {path.stat().st_size >> 20}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error


def _from_tsplib(path: Path) -> _Unsolved:
    try:
        found = tsplib.parse(_content(path).decode("utf-8", "replace"), MOST_CITIES)
        distances = _checked(found.distances)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    name = found.name or path.stem
    return _Unsolved(name, partial(_solved, name, distances, found.coordinates, str(path)))


def _from_record(line: bytes, where: str, number: int) -> _Unsolved:
    try:
        record = msgspec.json.decode(line, type=Record)
        distances = _checked(record.weights)
        coordinates = _coordinates(record.coords, len(distances))
        given = None if record.optimal_tour is None else _tour(record.optimal_tour, len(distances))
    except ValueError as error:  # msgspec's errors are such, too
        raise DataError(f"{where}: {error}") from error
    name = record.id or f"line_{number:04d}"
    return _Unsolved(name, partial(_solved, name, distances, coordinates, where, given, record.optimum))


def _solved(
    name: str,
    distances: Distances,
    coordinates: Sequence[Sequence[float]] | None,
    where: str,
    given: Route | None = None,
    optimum: float | None = None,
) -> Instance:
    """Return an instance with its shortest route, which is computed unless it is given. optimum: checked, if any."""
    route = given or _proven(distances, where)
    _check_optimum(optimum, distances, route, where)
    return make_instance(name, distances, coordinates, route)


def _checked(weights: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return a matrix as instances have it. Raises ValueError."""
    cities = len(weights)
    if cities < 3 or any(len(row) != cities for row in weights):
        raise ValueError(f"expected a square matrix of at least 3 cities, got {cities} rows, or rows of other lengths")
    matrix = np.round(np.array(weights, dtype=np.float64), DECIMALS)
    np.fill_diagonal(matrix, 0)
    if not ((matrix >= 0) & (matrix < _LONGEST)).all():
        raise ValueError(f"expected distances of at least 0 and below {_LONGEST:.0e}")
    if (matrix != matrix.T).any():
        raise ValueError("expected a symmetric matrix: the way back must be as long as the way there")
    if not matrix.any():
        raise ValueError(f"expected distances that are not all 0 when rounded to {DECIMALS} decimals")
    found: list[list[float]] = matrix.tolist()
    return found


def _coordinates(coordinates: Sequence[tuple[float, float]] | None, cities: int) -> list[list[float]] | None:
    if coordinates is None:
        return None
    if len(coordinates) != cities or not np.isfinite(coordinates).all():
        raise ValueError(f"coords: expected {cities} pairs of numbers, got {len(coordinates)}")
    return [list(pair) for pair in coordinates]


def _tour(tour: Sequence[int], cities: int) -> list[int]:
    if sorted(tour) != list(range(cities)):
        raise ValueError(f"optimal_tour: expected each of the cities 0 to {cities - 1} once")
    start = tour.index(0)
    return [*tour[start:], *tour[:start], 0]


def _proven(distances: Distances, where: str) -> list[int]:
    if len(distances) > MOST_CITIES:
        raise DataError(
            f"{where}: expected at most {MOST_CITIES} cities, whose shortest route can be proven, got "
            f"{len(distances)}; give the record's optimal_tour"
        )
    return optimal_route(distances)


def _check_optimum(optimum: float | None, distances: Distances, route: Route, where: str) -> None:
    shortest = length(distances, route)
    # Each of the tour's distances was rounded.
    if optimum is not None and not abs(shortest - optimum) <= 0.5 * 10**-DECIMALS * len(route):
        raise DataError(
            f"{where}: expected the optimum {shortest:g}, the length of the shortest route, got {optimum:g}"
        )

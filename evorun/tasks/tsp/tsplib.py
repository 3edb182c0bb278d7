"""Reading TSPLIB's .tsp format, and its distances.

By Gerhard Reinelt's description of the format. The package tsplib95 reads it too, but has had no release since 2020 and
holds networkx below version 3, which newer packages need.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Earth's radius in kilometres, as TSPLIB has it
_EARTH = 6378.388
# TSPLIB's own value: its published lengths depend on it
_PI = 3.141592

# Distances that are computed from coordinates
_KINDS = ("EUC_2D", "CEIL_2D", "ATT", "GEO")

_Array = NDArray[np.float64]


class Tsplib(NamedTuple):
    """The content of a file."""

    name: str
    """Empty where the file has none."""
    coordinates: list[list[float]] | None
    """None where the distances are explicit."""
    distances: list[list[float]]


def parse(text: str, max_cities: int) -> Tsplib:
    """Read a symmetric problem. Raises ValueError, in one line, for anything else and for more than `max_cities`."""
    header, sections = _split_sections(text)
    kind = header.get("TYPE", "TSP").split()[0:1]
    if kind != ["TSP"]:
        raise ValueError(f"expected TYPE: TSP, got '{header['TYPE'][:20]}'")
    dimension = header.get("DIMENSION", "none")
    if not re.fullmatch("[0-9]{1,9}", dimension):
        raise ValueError(f"expected DIMENSION: a number of cities, got '{dimension[:20]}'")
    cities = int(dimension)
    if cities > max_cities:
        raise ValueError(
            f"expected at most {max_cities} cities, whose shortest route can be proven, got {cities}; larger "
            "problems can be read from JSONL with their optimal_tour"
        )
    weight_type = header.get("EDGE_WEIGHT_TYPE", "none")
    if weight_type == "EXPLICIT":
        matrix = _read_matrix(header.get("EDGE_WEIGHT_FORMAT", "none"), sections.get("EDGE_WEIGHT_SECTION", ()), cities)
        return Tsplib(header.get("NAME", ""), None, matrix.tolist())
    if weight_type not in _KINDS:
        known = ", ".join(sorted({*_KINDS, "EXPLICIT"}))
        raise ValueError(f"expected EDGE_WEIGHT_TYPE to be one of {known}, got '{weight_type[:20]}'")
    points = _points(sections.get("NODE_COORD_SECTION", ()), cities)
    matrix = _compute_distances(weight_type, points)
    np.fill_diagonal(matrix, 0)
    return Tsplib(header.get("NAME", ""), points.tolist(), matrix.tolist())


def _split_sections(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the header's values and each section's numbers, as texts."""
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    numbers: list[str] | None = None
    for line in map(str.strip, text.splitlines()):
        key, colon, value = line.partition(":")
        key = key.strip().upper()
        # With or without a colon behind the section's name: files differ.
        if key.endswith("_SECTION"):
            numbers = sections.setdefault(key, [])
        elif colon:
            header[key] = value.strip()
        elif key == "EOF":
            break
        elif line and numbers is None:
            raise ValueError(f"expected 'KEYWORD: value' or the name of a section, got '{line[:40]}'")
        elif numbers is not None:
            numbers += line.split()
    return header, sections


def _numbers(section: str, texts: Sequence[str], expected: int) -> _Array:
    if len(texts) != expected:
        raise ValueError(f"{section}: expected {expected} numbers, got {len(texts)}")
    try:
        return np.array([float(text) for text in texts])
    except ValueError as error:
        raise ValueError(f"{section}: expected numbers only: {str(error)[:60]}") from error


def _points(texts: Sequence[str], cities: int) -> _Array:
    """Return coordinates in the order of the nodes' numbers, which may begin anywhere."""
    nodes = _numbers("NODE_COORD_SECTION", texts, 3 * cities).reshape(cities, 3)
    # Numbers of nodes may begin anywhere and have gaps, but each denotes one city.
    if len(np.unique(nodes[:, 0])) < cities:
        raise ValueError("NODE_COORD_SECTION: expected each node once")
    points: _Array = nodes[np.argsort(nodes[:, 0]), 1:]
    if not np.abs(points).max(initial=0) < 1e8:
        raise ValueError("NODE_COORD_SECTION: expected coordinates below 1e8")
    return points


# --- distances ---


def _compute_distances(kind: str, points: _Array) -> _Array:
    """Return the distances between all points, rounded to whole numbers by the rule of their kind."""
    if kind == "GEO":
        # Degrees are truncated, not rounded as the description says: the published optima depend on it.
        degrees = np.trunc(points)
        latitude, longitude = (_PI * (degrees + 5 * (points - degrees) / 3) / 180).T
        q1 = np.cos(longitude[:, None] - longitude)
        q2 = np.cos(latitude[:, None] - latitude)
        q3 = np.cos(latitude[:, None] + latitude)
        angle: _Array = np.arccos(np.clip(0.5 * ((1 + q1) * q2 - (1 - q1) * q3), -1, 1))
        return np.floor(_EARTH * angle + 1)
    x, y = np.moveaxis(points[:, None] - points, -1, 0)
    if kind == "ATT":  # pseudo-Euclidean: a tenth of the square, and never rounded down
        exact = np.sqrt((x * x + y * y) / 10)
        nearest = np.floor(exact + 0.5)
        return np.where(nearest < exact, nearest + 1, nearest)
    euclidean: _Array = np.hypot(x, y)
    return np.ceil(euclidean) if kind == "CEIL_2D" else np.floor(euclidean + 0.5)


# --- matrices ---


# The columns of one triangle are the rows of the other.
# Indices of a triangle in the order of its numbers in the file, and its first diagonal
_TRIANGLES: dict[str, tuple[Callable[[int, int], Any], int]] = {
    "UPPER_ROW": (np.triu_indices, 1),
    "LOWER_COL": (np.triu_indices, 1),
    "LOWER_ROW": (np.tril_indices, -1),
    "UPPER_COL": (np.tril_indices, -1),
    "UPPER_DIAG_ROW": (np.triu_indices, 0),
    "LOWER_DIAG_COL": (np.triu_indices, 0),
    "LOWER_DIAG_ROW": (np.tril_indices, 0),
    "UPPER_DIAG_COL": (np.tril_indices, 0),
}


def _read_matrix(layout: str, texts: Sequence[str], cities: int) -> _Array:
    if layout == "FULL_MATRIX":
        return _numbers("EDGE_WEIGHT_SECTION", texts, cities * cities).reshape(cities, cities)
    if layout not in _TRIANGLES:
        known = ", ".join(sorted({*_TRIANGLES, "FULL_MATRIX"}))
        raise ValueError(f"expected EDGE_WEIGHT_FORMAT to be one of {known}, got '{layout[:20]}'")
    indices, diagonal = _TRIANGLES[layout]
    rows, columns = indices(cities, diagonal)
    matrix = np.zeros((cities, cities))
    matrix[rows, columns] = _numbers("EDGE_WEIGHT_SECTION", texts, len(rows))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix

"""A graph as prompts show it."""

from collections.abc import Sequence
from typing import Any

from evorun.tasks.graph_coloring.graph import Graph

MATRIX_VERTICES = 60
"""Most vertices of a graph shown as a matrix, as in the paper; beyond, lists of neighbours are shorter (ours)."""


def shown(of: Graph, colors: int) -> dict[str, Any]:
    """Return the variables of the task's prompts; all but `graph` and `as_matrix` are numbers."""
    as_matrix = of.vertices <= MATRIX_VERTICES
    return {
        "vertices": of.vertices,
        "colors": colors,
        "edges": len(of.edges),
        "as_matrix": as_matrix,
        "graph": _matrix(of) if as_matrix else _lists(of),
    }


def _matrix(of: Graph) -> str:
    rows = [["n"] * of.vertices for _ in range(of.vertices)]
    for u, v in of.edges:
        rows[u][v] = rows[v][u] = "y"
    return _lines(rows)


def _lists(of: Graph) -> str:
    """Return a line for each vertex with neighbours of a higher number: `0: 3 5`."""
    rows: dict[int, list[str]] = {}
    for u, v in of.edges:
        rows.setdefault(u, [f"{u}:"]).append(str(v))
    return _lines(list(rows.values()))


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(row) for row in rows)

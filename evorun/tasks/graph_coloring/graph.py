"""Graphs and colourings as plain values."""

from collections.abc import Iterable, Sequence
from itertools import combinations, compress
from typing import NamedTuple

import numpy as np

Edge = tuple[int, int]
Coloring = Sequence[int]
"""A colour for each vertex, in the vertices' order."""


class Graph(NamedTuple):
    """An undirected graph without loops; vertices are 0 to `vertices` - 1."""

    vertices: int
    edges: tuple[Edge, ...]
    """Each once, the smaller end first, in ascending order."""


def graph(vertices: int, edges: Iterable[Edge]) -> Graph:
    """Return a graph from edges in any order and direction; repeated ones count once."""
    return Graph(vertices, tuple(sorted({(u, v) if u < v else (v, u) for u, v in edges})))


def random_graph(vertices: int, probability: float, rng: np.random.Generator) -> Graph:
    """Draw from G(vertices, probability): every pair is joined with the same probability (section 3.2)."""
    pairs = combinations(range(vertices), 2)
    joined = rng.random(vertices * (vertices - 1) // 2) < probability
    return Graph(vertices, tuple(compress(pairs, joined.tolist())))


def neighbours(of: Graph) -> list[set[int]]:
    """Return each vertex's neighbours."""
    found: list[set[int]] = [set() for _ in range(of.vertices)]
    for u, v in of.edges:
        found[u].add(v)
        found[v].add(u)
    return found


def conflicts(coloring: Coloring, edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges whose ends have the same colour, in their order (CE of section 4.1.1)."""
    return [(u, v) for u, v in edges if coloring[u] == coloring[v]]


def as_text(coloring: Coloring) -> str:
    """Return a colouring as answers have it."""
    return ",".join(map(str, coloring))


def as_coloring(answer: str) -> list[int]:
    """Return the colouring that an answer in canonical form holds."""
    return list(map(int, answer.split(",")))

"""Graphs and colourings as plain values."""

from collections.abc import Iterable, Sequence
from itertools import combinations, compress
from typing import NamedTuple

import numpy as np

Edge = tuple[int, int]
Coloring = Sequence[int]
"""A colour per vertex, in the order of vertices."""


class Graph(NamedTuple):
    """An undirected graph without loops; vertices are 0 to `vertices` - 1."""

    vertices: int
    edges: tuple[Edge, ...]
    """Distinct edges in ascending order, each with the smaller end first."""


def make_graph(vertices: int, edges: Iterable[Edge]) -> Graph:
    """Make a graph from edges in any order and direction; repeated edges are merged."""
    return Graph(vertices, tuple(sorted({(u, v) if u < v else (v, u) for u, v in edges})))


def random_graph(vertices: int, probability: float, rng: np.random.Generator) -> Graph:
    """Draw from G(vertices, probability): every pair is joined with the same probability (section 3.2)."""
    pairs = combinations(range(vertices), 2)
    joined = rng.random(vertices * (vertices - 1) // 2) < probability
    return Graph(vertices, tuple(compress(pairs, joined.tolist())))


def neighbours(graph: Graph) -> list[set[int]]:
    """Return each vertex's neighbours."""
    neighbours_by_vertex: list[set[int]] = [set() for _ in range(graph.vertices)]
    for u, v in graph.edges:
        neighbours_by_vertex[u].add(v)
        neighbours_by_vertex[v].add(u)
    return neighbours_by_vertex


def conflicts(coloring: Coloring, edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges whose ends have the same colour, in their order (CE of section 4.1.1)."""
    return [(u, v) for u, v in edges if coloring[u] == coloring[v]]


def format_coloring(coloring: Coloring) -> str:
    """Return a colouring in the canonical form of answers."""
    return ",".join(map(str, coloring))


def parse_coloring(answer: str) -> list[int]:
    """Return the colouring in a canonical answer."""
    return list(map(int, answer.split(",")))

"""Random graphs: every pair of vertices is joined with the same probability, independently (section 3.2)."""

from itertools import combinations, compress

import numpy as np

from evorun.tasks.graph_coloring.graph import Graph


def random_graph(vertices: int, probability: float, rng: np.random.Generator) -> Graph:
    """Draw from G(vertices, probability)."""
    pairs = combinations(range(vertices), 2)
    joined = rng.random(vertices * (vertices - 1) // 2) < probability
    return Graph(vertices, tuple(compress(pairs, joined.tolist())))

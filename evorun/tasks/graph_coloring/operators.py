"""The symbolic operators of sections 4.1.6 and 4.1.7 for graph colouring (GC ECO and GC EMO).

They use the errors that a detector reported, not the graph: Algorithm 1 passes them to ECO and EMO, up to its limit of
errors, and a model's may be wrong. Without errors the crossover draws every colour from either parent, and the mutation
changes nothing; the formulas have no separate case for this.

Conflict Edges Resolution draws an index i and recolours it if `c[i] in CV(c)`. CV(c) holds vertices and c[i] is a
colour, so the vertex i must be meant. Over all indices, most draws would hit vertices without a conflict and do
nothing, more often with fewer reported errors; so i is drawn among the conflict vertices.
Excess Colors Correction applies where an excess was reported. Then it replaces every colour that is not allowed, as in
the paper's last sentence on it, and not only those up to k + ECC(c), which would miss colours after a gap.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evorun.tasks.graph_coloring.graph import Coloring

EXCESS = "excess"
"""Marks the only finding that is no conflict, `[EXCESS, n]`. A conflict is `[u, v, colour]`."""


def conflict_vertices(findings: Sequence[Any]) -> set[int]:
    """Return the vertices of the reported conflicts (CV)."""
    vertices = set()
    for finding in findings:
        if finding[0] != EXCESS:
            vertices.update(finding[:2])
    return vertices


def crossover(
    first: Coloring, second: Coloring, findings: tuple[Sequence[Any], Sequence[Any]], rng: np.random.Generator
) -> list[int]:
    """Return a child: a vertex in conflict in only one parent comes from the other parent (section 4.1.6).

    All other vertices come from either parent with probability one half. findings: those of each parent.
    """
    bad_first, bad_second = (conflict_vertices(parent_findings) for parent_findings in findings)
    child = list(first)
    for vertex, heads in enumerate((rng.random(len(child)) < 0.5).tolist()):
        in_one_parent = (vertex in bad_first) != (vertex in bad_second)
        if vertex in bad_first if in_one_parent else heads:
            child[vertex] = second[vertex]
    return child


def mutate(coloring: Coloring, findings: Sequence[Any], k: int, rng: np.random.Generator) -> list[int]:
    """Return a colouring with one conflict vertex recoloured, and with excess colours replaced if reported (4.1.7)."""
    child = list(coloring)
    # Drawn together: single draws would take most of the time.
    which, new, *replacements = rng.random(len(child) + 2).tolist()
    candidates = sorted(conflict_vertices(findings))
    if candidates:
        vertex = candidates[int(which * len(candidates))]
        color_before = child[vertex]
        choices = k - (color_before < k)  # an excess colour is not among the k
        if choices:
            chosen = int(new * choices)
            child[vertex] = chosen + (chosen >= color_before)
    if any(finding[0] == EXCESS for finding in findings):
        child = [color if color < k else int(u * k) for color, u in zip(child, replacements, strict=True)]
    return child

"""The symbolic operators of sections 4.1.6 and 4.1.7 for graph colouring (GC ECO and GC EMO).

They read the errors that a detector reported, not the graph: Algorithm 1 hands them to ECO and EMO, no more than its
limit of errors, and a model's may be wrong. Without errors the crossover draws every colour from either parent, and the
mutation changes nothing. The formulas have no case of their own for an answer without errors.

Conflict Edges Resolution draws one index i and recolours it if `c[i] in CV(c)`. CV(c) holds vertices and c[i] is a
colour, so that the vertex i must be meant. Over all indices most draws would fall on vertices that are no conflict's
and do nothing, the more of them the fewer errors are named; so i is drawn among the conflict vertices.
Excess Colors Correction is applied where an excess was reported; then it replaces every colour that is not allowed, as
the paper's last sentence on it says, and not only those up to k + ECC(c), which gaps in the colours would escape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evorun.tasks.graph_coloring.graph import Coloring

EXCESS = "excess"
"""Marks the one finding that is no conflict: `[EXCESS, n]`. A conflict is `[u, v, colour]`."""


def conflict_vertices(findings: Sequence[Any]) -> set[int]:
    """Return the vertices of the conflicts that were reported (CV)."""
    found = set()
    for finding in findings:
        if finding[0] != EXCESS:
            found.update(finding[:2])
    return found


def crossover(
    first: Coloring, second: Coloring, findings: tuple[Sequence[Any], Sequence[Any]], rng: np.random.Generator
) -> list[int]:
    """Return a child that has each vertex from the parent where only the other has it in a conflict (section 4.1.6).

    All other vertices come from either, with even chances. findings: those of each parent.
    """
    bad_first, bad_second = (conflict_vertices(found) for found in findings)
    child = list(first)
    for vertex, heads in enumerate((rng.random(len(child)) < 0.5).tolist()):
        only_one = (vertex in bad_first) != (vertex in bad_second)
        if vertex in bad_first if only_one else heads:
            child[vertex] = second[vertex]
    return child


def mutate(coloring: Coloring, findings: Sequence[Any], k: int, rng: np.random.Generator) -> list[int]:
    """Return a colouring with one conflict vertex recoloured, and an excess that was reported replaced (4.1.7)."""
    child = list(coloring)
    # Drawn at once: single draws would take most of the time.
    which, new, *replacements = rng.random(len(child) + 2).tolist()
    candidates = sorted(conflict_vertices(findings))
    if candidates:
        vertex = candidates[int(which * len(candidates))]
        own = child[vertex]
        others = k - (own < k)  # its own colour is none of the k where it is in excess
        if others:
            chosen = int(new * others)
            child[vertex] = chosen + (chosen >= own)
    if any(finding[0] == EXCESS for finding in findings):
        child = [color if color < k else int(u * k) for color, u in zip(child, replacements, strict=True)]
    return child

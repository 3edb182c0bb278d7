"""Colourings without conflicts, or with as few as possible.

There are two questions with different algorithms. `color` and `chromatic` decide and prove: first by a backtracking
search, which settles small graphs and many large ones immediately, then by a local search for a colouring, then by a
constraint solver. `best` minimizes conflicts where no colouring is free of them: exactly, by branch and bound, in small
graphs, and by the local search in larger ones. There the constraint solver does not help: from 30 vertices on, in
twenty times the time, it neither proved nor improved the local search's result.

Everything here is deterministic: limits count search steps, or the constraint solver's own unit of work (about a second
on one core), never time. No graph of the paper's size reaches the constraint solver, whose import alone takes longer
than such a graph.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evorun.tasks.graph_coloring.graph import Graph, neighbours

WORK = 5.0
"""The constraint solver's limit for one question, in its units of deterministic time."""
# Maximum steps of the backtracking search, after which the question stays open
_MAX_STEPS = 20_000
# Maximum vertices of a graph for branch and bound
_MAX_EXACT_VERTICES = 24
# Maximum steps of branch and bound, after which its result is unproven
_MAX_BRANCHES = 5_000
# Maximum moves of the local search
_MAX_MOVES = 5_000
# Maximum size of a model for the constraint solver, in occurrences of variables
_MAX_LITERALS = 2_000_000


class Coloured(NamedTuple):
    """The answer to the question whether k colours suffice for a graph."""

    coloring: tuple[int, ...] | None
    """A colouring without conflicts; None where none was found."""
    proven: bool
    """True where None means that there is none."""


class Best(NamedTuple):
    """The best colouring found."""

    coloring: tuple[int, ...]
    conflicts: int
    """Edges whose ends have the same colour."""
    proven: bool
    """True where no colouring has fewer conflicts."""


class Chromatic(NamedTuple):
    """Bounds on a chromatic number, equal where it is known."""

    lower: int
    upper: int
    coloring: tuple[int, ...]
    """A colouring with `upper` colours."""


def color(graph: Graph, k: int, work: float = WORK) -> Coloured:
    """Search for a colouring without conflicts in colours 0 to k - 1, k >= 1. work: the constraint solver's limit."""
    around = neighbours(graph)
    clique = _clique(around)
    # All vertices of a clique need different colours, which proves it without a search.
    if len(clique) > k:
        return Coloured(None, proven=True)
    # Cheapest first: backtracking settles most graphs, the local search most others. The constraint solver is last,
    # since its import takes longer than both.
    found = _backtrack(around, clique, k)
    if found.proven:
        return found
    near = _local_search(graph, k)
    return Coloured(near.coloring, proven=True) if near.proven else _solve_constraints(graph, clique, k, work)


def best(graph: Graph, k: int) -> Best:
    """Search for a colouring with the fewest conflicts in colours 0 to k - 1, k >= 1."""
    found = _backtrack(neighbours(graph), (), k).coloring
    if found is not None:
        return Best(found, 0, proven=True)
    # Branch and bound takes exponential time; beyond this size it would stop without a proof.
    exact = _branch(graph, k) if graph.vertices <= _MAX_EXACT_VERTICES else None
    if exact is not None and exact.proven:
        return exact
    near = _local_search(graph, k)
    return near if exact is None or near.conflicts < exact.conflicts else exact


def chromatic(graph: Graph, work: float = WORK) -> Chromatic:
    """Bound the chromatic number of a non-empty graph: from below by a clique, from above by colourings.

    work: the constraint solver's limit per number of colours.
    """
    around = neighbours(graph)
    lower = len(_clique(around))
    coloring = _backtrack(around, (), graph.vertices).coloring or tuple(range(graph.vertices))
    # Each colouring found lowers the upper bound; a proof that there is none ends the search.
    while (upper := max(coloring) + 1) > lower:
        found = color(graph, upper - 1, work)
        if found.coloring is None:
            return Chromatic(upper if found.proven else lower, upper, coloring)
        coloring = found.coloring
    return Chromatic(lower, upper, coloring)


# --- searches in Python ---


def _clique(around: Sequence[set[int]]) -> tuple[int, ...]:
    """Return a large clique: the largest that grows greedily from any vertex, by the most connected neighbour."""
    largest: list[int] = []
    for start in sorted(range(len(around)), key=lambda v: -len(around[v])):
        if len(around[start]) < len(largest):
            break
        clique, common = [start], set(around[start])
        while common:
            vertex = max(common, key=lambda v: (len(around[v] & common), -v))
            clique.append(vertex)
            common &= around[vertex]
        if len(clique) > len(largest):
            largest = clique
    return tuple(largest)


def _backtrack(around: Sequence[set[int]], clique: Sequence[int], k: int) -> Coloured:
    """Backtrack in DSATUR order: the clique first, then the vertex with the fewest remaining colours.

    Of the unused colours only the lowest is tried, since the others are equivalent up to renaming.
    """
    size, all_colors = len(around), (1 << k) - 1
    colors, taken = [-1] * size, [0] * size
    path: list[tuple[int, int, list[int], int]] = []  # vertex, colours to try, neighbours restricted, colours used
    used = steps = 0
    vertex, options = -1, 0
    while len(path) < size:
        if vertex < 0:
            if len(path) < len(clique):
                vertex = clique[len(path)]
            else:
                uncolored = (v for v, color in enumerate(colors) if color < 0)
                vertex = max(uncolored, key=lambda v: (taken[v].bit_count(), len(around[v])))
            options = all_colors & ~taken[vertex] & ((1 << (used + 1)) - 1)
            steps += 1
            if steps > _MAX_STEPS + size:
                return Coloured(None, proven=False)
        if not options:
            if not path:
                return Coloured(None, proven=True)
            vertex, options, restricted, used = path.pop()
            bit = 1 << colors[vertex]
            for neighbour in restricted:
                taken[neighbour] &= ~bit
            colors[vertex] = -1
            continue
        bit = options & -options
        colors[vertex] = bit.bit_length() - 1
        restricted = [u for u in around[vertex] if colors[u] < 0 and not taken[u] & bit]
        for neighbour in restricted:
            taken[neighbour] |= bit
        path.append((vertex, options ^ bit, restricted, used))
        used = max(used, colors[vertex] + 1)
        vertex = -1
    return Coloured(tuple(colors), proven=True)


def _local_search(graph: Graph, k: int) -> Best:
    """Return the best colouring of a tabu search (Hertz and de Werra, 1987), which makes the best non-tabu move."""
    import numpy as np

    size, around = graph.vertices, [np.fromiter(adjacent, dtype=np.intp) for adjacent in neighbours(graph)]
    rng = np.random.default_rng(0)
    colors = rng.integers(k, size=size)
    all_vertices = np.arange(size)
    color_counts = np.zeros((size, k), dtype=np.int64)  # neighbours by colour
    for u, v in graph.edges:
        color_counts[u, colors[v]] += 1
        color_counts[v, colors[u]] += 1
    tabu = np.zeros((size, k), dtype=np.int64)
    conflicts = int(color_counts[all_vertices, colors].sum()) // 2
    best_colors, fewest = colors.copy(), conflicts
    for move in range(_MAX_MOVES):
        if not fewest or k == 1:
            break
        conflicts_now = color_counts[all_vertices, colors]
        gain = color_counts - conflicts_now[:, None]
        # Aspiration: a tabu move is allowed if it leads to a new minimum.
        blocked = (tabu > move) & (conflicts + gain >= fewest)
        # Only vertices in conflict move; others could only add conflicts or change nothing.
        blocked[conflicts_now == 0] = True
        blocked[all_vertices, colors] = True
        cost = np.where(blocked, size, gain)
        choices = np.flatnonzero(cost == cost.min())
        vertex, color = divmod(int(choices[rng.integers(len(choices))]), k)
        old = colors[vertex]
        conflicts += int(gain[vertex, color])
        color_counts[around[vertex], old] -= 1
        color_counts[around[vertex], color] += 1
        colors[vertex] = color
        # The tenure of Galinier and Hao (1999): random, and longer with more vertices in conflict.
        tabu[vertex, old] = move + 1 + int(rng.integers(10)) + int((conflicts_now > 0).sum()) * 3 // 5
        if conflicts < fewest:
            best_colors, fewest = colors.copy(), conflicts
    return Best(tuple(best_colors.tolist()), fewest, proven=fewest == 0)


def _branch(graph: Graph, k: int) -> Best:
    """Minimize conflicts by branch and bound; the recursion depth is the number of vertices."""
    around = neighbours(graph)
    colors = [-1] * graph.vertices
    color_counts = [[0] * k for _ in range(graph.vertices)]
    best_found, steps = Best((0,) * graph.vertices, len(graph.edges), proven=False), 0

    def extend(remaining: int, conflicts: int, used: int) -> None:
        nonlocal best_found, steps
        steps += 1
        if remaining == 0:
            best_found = Best(tuple(colors), conflicts, proven=True)
            return
        uncolored = [v for v, color in enumerate(colors) if color < 0]
        # Each vertex's lower bound counts only edges to coloured vertices, so no edge counts twice.
        if steps > _MAX_BRANCHES or conflicts + sum(min(color_counts[v]) for v in uncolored) >= best_found.conflicts:
            return
        vertex = max(uncolored, key=lambda v: (min(color_counts[v]), sum(color_counts[v]), len(around[v])))
        counts = color_counts[vertex]
        for color in sorted(range(min(used + 1, k)), key=counts.__getitem__):
            if conflicts + counts[color] < best_found.conflicts:
                colors[vertex] = color
                for u in around[vertex]:
                    color_counts[u][color] += 1
                extend(remaining - 1, conflicts + counts[color], max(used, color + 1))
                for u in around[vertex]:
                    color_counts[u][color] -= 1
        colors[vertex] = -1

    extend(graph.vertices, 0, 0)
    return best_found._replace(proven=steps <= _MAX_BRANCHES)


# --- the constraint solver ---


def _solve_constraints(graph: Graph, clique: Sequence[int], k: int, work: float) -> Coloured:
    """Decide whether k colours suffice; the clique gets the first colours, without loss of generality."""
    if 2 * k * (graph.vertices + len(graph.edges)) > _MAX_LITERALS:
        return Coloured(None, proven=False)
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    has = [[model.new_bool_var("") for _ in range(k)] for _ in range(graph.vertices)]
    for vertex_colors in has:
        model.add_exactly_one(vertex_colors)
    for color, vertex in enumerate(clique):
        model.add(has[vertex][color] == 1)
    for u, v in graph.edges:
        for c in range(k):
            model.add_at_most_one(has[u][c], has[v][c])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Coloured(
            tuple(next(c for c in range(k) if solver.value(vertex_colors[c])) for vertex_colors in has), proven=True
        )
    return Coloured(None, proven=status == cp_model.INFEASIBLE)

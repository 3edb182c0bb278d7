"""Colourings without conflicts, or with few: what graphs allow.

Two questions with different means. `color` and `chromatic` decide and prove: a backtracking search, which settles small
graphs and many large ones at once, then a local search for a colouring, then a constraint solver. `best` looks for the
fewest conflicts where no colouring is free of them: exactly, by branch and bound, in small graphs, and by the local
search in larger ones. The constraint solver is not used for that: at 30 vertices and more it neither proved nor
improved what the local search had found, in twenty times its time.

Everything here is deterministic: limits count steps of a search, or the constraint solver's own unit of work (about a
second on one core), never time. No graph of the paper's size reaches the constraint solver, whose import alone takes
longer than such a graph.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evorun.tasks.graph_coloring.graph import Graph, neighbours

WORK = 5.0
"""The constraint solver's limit for one question, in its units of deterministic time."""
# Steps of the backtracking search after which it leaves a question open
_STEPS = 20_000
# Most vertices of a graph whose fewest conflicts are looked for by branch and bound
_SMALL = 24
# Steps of branch and bound after which its result is not proven
_BRANCHES = 5_000
# Moves of the local search
_MOVES = 5_000
# Size of a model, in occurrences of variables, that the constraint solver is still asked about
_LITERALS = 2_000_000


class Coloured(NamedTuple):
    """The answer to whether k colours are enough for a graph."""

    coloring: tuple[int, ...] | None
    """One without conflicts; None where none was found."""
    proven: bool
    """True where a None means that there is none."""


class Best(NamedTuple):
    """The best colouring that was found."""

    coloring: tuple[int, ...]
    conflicts: int
    """Edges whose ends have the same colour."""
    proven: bool
    """True where no colouring has fewer conflicts."""


class Chromatic(NamedTuple):
    """Bounds of a chromatic number; equal where it is known."""

    lower: int
    upper: int
    coloring: tuple[int, ...]
    """One with `upper` colours."""


def color(of: Graph, k: int, work: float = WORK) -> Coloured:
    """Look for a colouring without conflicts in colours 0 to k - 1, k >= 1; `work`: the constraint solver's limit."""
    around = neighbours(of)
    clique = _clique(around)
    # Vertices of a clique all need different colours: a proof without any search.
    if len(clique) > k:
        return Coloured(None, proven=True)
    # Cheapest first: backtracking settles most graphs, a local search finds what it left open, and only then the
    # constraint solver, whose import takes longer than both.
    found = _backtrack(around, clique, k)
    if found.proven:
        return found
    near = _local_search(of, k)
    return Coloured(near.coloring, proven=True) if near.proven else _by_constraints(of, clique, k, work)


def best(of: Graph, k: int) -> Best:
    """Look for a colouring with the fewest conflicts in colours 0 to k - 1, k >= 1."""
    found = _backtrack(neighbours(of), (), k).coloring
    if found is not None:
        return Best(found, 0, proven=True)
    # Branch and bound takes exponential time; beyond this size it would end without a proof.
    exact = _branch(of, k) if of.vertices <= _SMALL else None
    if exact is not None and exact.proven:
        return exact
    near = _local_search(of, k)
    return near if exact is None or near.conflicts < exact.conflicts else exact


def chromatic(of: Graph, work: float = WORK) -> Chromatic:
    """Bound the chromatic number of a graph with at least one vertex: from below by a clique, from above by colourings.

    work: the constraint solver's limit for each number of colours.
    """
    around = neighbours(of)
    lower = len(_clique(around))
    coloring = _backtrack(around, (), of.vertices).coloring or tuple(range(of.vertices))
    # From above: each colouring that is found lowers the bound, and a proof that there is none ends it.
    while (upper := max(coloring) + 1) > lower:
        found = color(of, upper - 1, work)
        if found.coloring is None:
            return Chromatic(upper if found.proven else lower, upper, coloring)
        coloring = found.coloring
    return Chromatic(lower, upper, coloring)


# --- searches in Python ---


def _clique(around: Sequence[set[int]]) -> tuple[int, ...]:
    """Return a large clique: the largest of those that grow from each vertex, always by the most connected one."""
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
    """Colour the vertex with the fewest colours left first (DSATUR), the clique before all others.

    Of the colours that no vertex has yet only the lowest is tried: the others would give the same up to their names.
    """
    size, everything = len(around), (1 << k) - 1
    colors, taken = [-1] * size, [0] * size
    path: list[tuple[int, int, list[int], int]] = []  # vertex, colours still to try, what it took from, colours used
    used = steps = 0
    vertex, options = -1, 0
    while len(path) < size:
        if vertex < 0:
            if len(path) < len(clique):
                vertex = clique[len(path)]
            else:
                left = (v for v, own in enumerate(colors) if own < 0)
                vertex = max(left, key=lambda v: (taken[v].bit_count(), len(around[v])))
            options = everything & ~taken[vertex] & ((1 << (used + 1)) - 1)
            steps += 1
            if steps > _STEPS + size:
                return Coloured(None, proven=False)
        if not options:
            if not path:
                return Coloured(None, proven=True)
            vertex, options, took, used = path.pop()
            bit = 1 << colors[vertex]
            for neighbour in took:
                taken[neighbour] &= ~bit
            colors[vertex] = -1
            continue
        bit = options & -options
        colors[vertex] = bit.bit_length() - 1
        took = [u for u in around[vertex] if colors[u] < 0 and not taken[u] & bit]
        for neighbour in took:
            taken[neighbour] |= bit
        path.append((vertex, options ^ bit, took, used))
        used = max(used, colors[vertex] + 1)
        vertex = -1
    return Coloured(tuple(colors), proven=True)


def _local_search(of: Graph, k: int) -> Best:
    """Return the best colouring on a tabu search's way (Hertz and de Werra, 1987): always the best move not tabu."""
    import numpy as np

    size, around = of.vertices, [np.fromiter(own, dtype=np.intp) for own in neighbours(of)]
    rng = np.random.default_rng(0)
    colors = rng.integers(k, size=size)
    everyone = np.arange(size)
    nearby = np.zeros((size, k), dtype=np.int64)  # neighbours of each colour
    for u, v in of.edges:
        nearby[u, colors[v]] += 1
        nearby[v, colors[u]] += 1
    tabu = np.zeros((size, k), dtype=np.int64)
    now = int(nearby[everyone, colors].sum()) // 2
    best_colors, fewest = colors.copy(), now
    for move in range(_MOVES):
        if not fewest or k == 1:
            break
        own = nearby[everyone, colors]
        gain = nearby - own[:, None]
        # Aspiration: a tabu move is allowed where it leads to fewer conflicts than ever before.
        blocked = (tabu > move) & (now + gain >= fewest)
        # Only vertices in a conflict move; others could only add conflicts or change nothing.
        blocked[own == 0] = True
        blocked[everyone, colors] = True
        cost = np.where(blocked, size, gain)
        choices = np.flatnonzero(cost == cost.min())
        vertex, color = divmod(int(choices[rng.integers(len(choices))]), k)
        old = colors[vertex]
        now += int(gain[vertex, color])
        nearby[around[vertex], old] -= 1
        nearby[around[vertex], color] += 1
        colors[vertex] = color
        # The tenure of Galinier and Hao (1999): random, and longer the more vertices are in conflict.
        tabu[vertex, old] = move + 1 + int(rng.integers(10)) + int((own > 0).sum()) * 3 // 5
        if now < fewest:
            best_colors, fewest = colors.copy(), now
    return Best(tuple(best_colors.tolist()), fewest, proven=fewest == 0)


def _branch(of: Graph, k: int) -> Best:
    """Look for the fewest conflicts by branch and bound; recursion as deep as the graph has vertices."""
    around = neighbours(of)
    colors = [-1] * of.vertices
    nearby = [[0] * k for _ in range(of.vertices)]
    found, steps = Best((0,) * of.vertices, len(of.edges), proven=False), 0

    def extend(left: int, so_far: int, used: int) -> None:
        nonlocal found, steps
        steps += 1
        if left == 0:
            found = Best(tuple(colors), so_far, proven=True)
            return
        open_ = [v for v, own in enumerate(colors) if own < 0]
        # What each vertex must add at least counts edges to coloured vertices only, so no edge counts twice.
        if steps > _BRANCHES or so_far + sum(min(nearby[v]) for v in open_) >= found.conflicts:
            return
        vertex = max(open_, key=lambda v: (min(nearby[v]), sum(nearby[v]), len(around[v])))
        own = nearby[vertex]
        for color in sorted(range(min(used + 1, k)), key=own.__getitem__):
            if so_far + own[color] < found.conflicts:
                colors[vertex] = color
                for u in around[vertex]:
                    nearby[u][color] += 1
                extend(left - 1, so_far + own[color], max(used, color + 1))
                for u in around[vertex]:
                    nearby[u][color] -= 1
        colors[vertex] = -1

    extend(of.vertices, 0, 0)
    return found._replace(proven=steps <= _BRANCHES)


# --- the constraint solver ---


def _by_constraints(of: Graph, clique: Sequence[int], k: int, work: float) -> Coloured:
    """Decide whether k colours are enough; the clique's vertices get the first ones, which loses nothing."""
    if 2 * k * (of.vertices + len(of.edges)) > _LITERALS:
        return Coloured(None, proven=False)
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    has = [[model.new_bool_var("") for _ in range(k)] for _ in range(of.vertices)]
    for own in has:
        model.add_exactly_one(own)
    for color, vertex in enumerate(clique):
        model.add(has[vertex][color] == 1)
    for u, v in of.edges:
        for c in range(k):
            model.add_at_most_one(has[u][c], has[v][c])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Coloured(tuple(next(c for c in range(k) if solver.value(own[c])) for own in has), proven=True)
    return Coloured(None, proven=status == cp_model.INFEASIBLE)

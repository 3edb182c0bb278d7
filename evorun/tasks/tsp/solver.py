"""Shortest routes, proven: dynamic programming for few cities, branch and cut for many.

Branch and cut hands SciPy's mixed-integer solver (HiGHS) the edges, two at every city, and adds the subtour constraints
that its solution violates until it violates none. The constraint solver of OR-Tools proves the same with its circuit
constraint, but took more than forty seconds at 42 cities, where branch and cut takes one.

Deterministic: the solver has one thread and no time limit.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorun.errors import DataError
from evorun.tasks.tsp.routes import DECIMALS, Distances

MAX_CITIES = 120
"""Most cities of a problem to solve: one tested instance of 76 to 105 cities took more than two minutes."""
# Most cities for dynamic programming, whose time more than doubles per city; above, branch and cut is faster
_MAX_HELD_KARP_CITIES = 14
# Capacity of an edge with weight 1 in a relaxed solution, for the maximum flows that find cuts
_CAPACITY = 1_000_000

_Weights = NDArray[np.int64]
_Flags = NDArray[np.bool_]


def optimal_route(distances: Distances) -> list[int]:
    """Return a shortest route through 3 to `MAX_CITIES` cities, in the direction whose second city is lower.

    distances: symmetric, to two decimals, below 1e9. Lengths are compared in hundredths, as integers.
    Raises DataError when the solver finds no route.
    """
    # Integers: sums of hundredths are exact, so two routes of equal length compare as equal.
    weights = np.rint(np.asarray(distances) * 10**DECIMALS).astype(np.int64)
    inner = held_karp(weights) if len(weights) <= _MAX_HELD_KARP_CITIES else branch_and_cut(weights)
    return [0, *(inner if inner[0] < inner[-1] else inner[::-1]), 0]


def held_karp(weights: _Weights) -> list[int]:
    """Return the cities between the two visits of city 0 on a shortest route.

    weights: (n, n). Takes O(n^2 2^n) time: `cost[subset, last]` is the shortest way from city 0 through all of a subset
    of the other cities to one of them.
    """
    others = len(weights) - 1
    between = weights[1:, 1:]
    # Half of the largest integer stands for "no way": adding a distance to it does not overflow.
    cost = np.full((1 << others, others), np.iinfo(np.int64).max // 2)
    cost[1 << np.arange(others), np.arange(others)] = weights[0, 1:]
    for subset, last, rest in _layers(others):
        cost[subset, last] = (cost[rest] + between[last]).min(axis=1)
    route: list[int] = []
    subset, onward = (1 << others) - 1, weights[0, 1:]
    while subset:
        last = int((cost[subset] + onward).argmin())
        route.append(last + 1)
        subset, onward = subset ^ (1 << last), between[last]
    return route


@cache
def _layers(others: int) -> list[tuple[Any, Any, Any]]:
    """Return, for each size of subset from 2, every subset with each of its cities, and the subset without it."""
    subsets = np.arange(1 << others)
    holds = (subsets[:, None] >> np.arange(others)) & 1
    sizes = holds.sum(axis=1)
    layers = []
    for size in range(2, others + 1):
        subset = subsets[sizes == size]
        row, last = np.nonzero(holds[subset])
        layers.append((subset[row], last, subset[row] ^ (1 << last)))
    return layers


def branch_and_cut(weights: _Weights) -> list[int]:
    """Return the cities between the two visits of city 0 on a shortest route. weights: (n, n), n >= 3."""
    program = _Program(weights)
    # First cut the relaxation, whose rounds are cheap, until it has no subtour; then the integral program.
    for integral in (False, True):
        while program.cut_off(edges := program.solve(integral)):
            pass
    return program.route(edges)


class _Program:
    """The integer program over the edges, and the subtour constraints that were needed so far."""

    def __init__(self, weights: _Weights) -> None:
        from scipy.sparse import csr_array

        self._n = len(weights)
        self._from, self._to = np.triu_indices(self._n, 1)
        self._cost = weights[self._from, self._to] / 10**DECIMALS
        ends = np.concatenate([self._from, self._to])
        edges = np.tile(np.arange(len(self._cost)), 2)
        self._rows: list[Any] = [csr_array((np.ones(len(ends)), (ends, edges)))]

    def solve(self, integral: bool) -> NDArray[np.float64]:
        """Return the weight of each edge in a cheapest solution under the constraints so far."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import vstack

        matrix = vstack(self._rows)
        upper = np.full(matrix.shape[0], np.inf)
        # The first n rows are the cities, with exactly two edges; all later ones are cuts, with at least two.
        upper[: self._n] = 2
        solved = milp(
            self._cost,
            integrality=np.full(len(self._cost), int(integral)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, np.full(len(upper), 2.0), upper),
            options={"mip_rel_gap": 0},
        )
        if solved.x is None:
            raise DataError(f"no shortest route through {self._n} cities was found: {solved.message}")
        found: NDArray[np.float64] = solved.x
        return found

    def cut_off(self, edges: NDArray[np.float64]) -> bool:
        """Constrain every set of cities that has less than two edges to the rest; return False when there is none."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        used = edges > 1e-6
        graph = csr_array((edges[used], (self._from[used], self._to[used])), shape=(self._n, self._n))
        count, part = connected_components(graph, directed=False)
        # Disconnected parts are found at once; thin cuts take one maximum flow per city.
        cuts = [part == number for number in range(count)] if count > 1 else self._thin_cuts(edges)
        self._rows += [self._leaving(inside) for inside in cuts]
        return bool(cuts)

    def route(self, edges: NDArray[np.float64]) -> list[int]:
        """Return the cities between the two visits of city 0 in a solution that is a single tour."""
        chosen = edges > 0.5
        neighbours: dict[int, list[int]] = {city: [] for city in range(self._n)}
        for u, v in zip(self._from[chosen].tolist(), self._to[chosen].tolist(), strict=True):
            neighbours[u].append(v)
            neighbours[v].append(u)
        previous, current, route = 0, neighbours[0][0], []
        while current:
            route.append(current)
            previous, current = current, neighbours[current][neighbours[current][0] == previous]
        return route

    def _thin_cuts(self, edges: NDArray[np.float64]) -> list[_Flags]:
        """Return, per city, a smallest cut between it and city 0, where the cut has less than two edges."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        used = edges > 1e-6
        u, v = self._from[used], self._to[used]
        # SciPy's maximum flow takes integers only.
        capacity = np.rint(edges[used] * _CAPACITY).astype(np.int32)
        capacities = np.concatenate([capacity, capacity])
        graph = csr_array((capacities, (np.concatenate([u, v]), np.concatenate([v, u]))), shape=(self._n, self._n))
        cuts: dict[bytes, _Flags] = {}
        for city in range(1, self._n):
            flow = maximum_flow(graph, 0, city)
            # Less than two edges, with a margin for the rounding of capacities.
            if flow.flow_value < 1.999 * _CAPACITY:
                left = graph - flow.flow
                left.data[left.data < 0] = 0
                left.eliminate_zeros()
                inside = np.zeros(self._n, dtype=bool)
                inside[breadth_first_order(left, 0, return_predecessors=False)] = True
                cuts[inside.tobytes()] = inside
        return list(cuts.values())

    def _leaving(self, inside: _Flags) -> Any:
        """Return the row that sums the edges between a set of cities and the rest."""
        from scipy.sparse import csr_array

        edges = np.flatnonzero(inside[self._from] != inside[self._to])
        return csr_array((np.ones(len(edges)), (np.zeros_like(edges), edges)), shape=(1, len(self._cost)))

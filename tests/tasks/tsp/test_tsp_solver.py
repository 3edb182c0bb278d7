"""Shortest routes against enumeration, each other, and published optima."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tsp_fixture import Matrix, matrices, shortest, tsplib_records, walk

from evorun.tasks.tsp.instances import draw_cities
from evorun.tasks.tsp.routes import length
from evorun.tasks.tsp.solver import branch_and_cut, held_karp, optimal_route

SOLVERS = [held_karp, branch_and_cut]
SLOW = 60
"""Cities from which a proof takes seconds. All 22 instances of the file were proven, up to 105 cities."""


def random_matrix(cities: int, seed: int) -> Any:
    _, distances = draw_cities(cities, 100.0, np.random.default_rng(seed))
    return np.rint(np.array(distances) * 100).astype(np.int64)


@pytest.mark.sample(3)
@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("high", [1, 3, 10_000])
def test_the_route_is_a_shortest_of_all(solve: Any, high: int) -> None:
    @settings(max_examples=30)
    @given(matrices(largest=7, high=high))
    def check(matrix: Matrix) -> None:
        route = solve(np.array(matrix))
        assert sorted(route) == list(range(1, len(matrix)))
        assert walk(matrix, [0, *route, 0]) == shortest(matrix)

    check()


@pytest.mark.parametrize("cities", [9, 12, *(pytest.param(n, marks=pytest.mark.nightly) for n in (14, 16))])
def test_both_ways_agree_where_enumeration_is_too_long(cities: int) -> None:
    for seed in range(3):
        matrix = random_matrix(cities, seed)
        lengths = [walk(matrix.tolist(), [0, *solve(matrix), 0]) for solve in SOLVERS]
        assert lengths[0] == lengths[1]


@pytest.mark.parametrize("cities", [3, 10, 14, 15, 20])
def test_the_route_is_closed_and_the_same_every_time(cities: int) -> None:
    distances = (random_matrix(cities, 1) / 100).tolist()
    route = optimal_route(distances)
    assert (route[0], route[-1], sorted(route[1:])) == (0, 0, list(range(cities)))
    assert route[1] < route[-2]
    assert optimal_route(distances) == route


@pytest.mark.sample(1)
@pytest.mark.parametrize("place", range(11))
def test_published_optima(place: int) -> None:
    small = [record for record in tsplib_records() if record["n"] < SLOW]
    assert len(small) == 11
    record = small[place]
    assert length(record["weights"], optimal_route(record["weights"])) == record["optimum"], record["id"]


def test_no_exchange_shortens_a_route_of_30_cities() -> None:
    matrix = random_matrix(30, 0).tolist()
    route = optimal_route([[value / 100 for value in row] for row in matrix])
    best = walk(matrix, route)
    for i, j in permutations(range(1, 30), 2):
        if i < j:
            assert walk(matrix, route[:i] + route[i : j + 1][::-1] + route[j + 1 :]) >= best
        moved = route[:i] + route[i + 1 :]
        assert walk(matrix, [*moved[:j], route[i], *moved[j:]]) >= best

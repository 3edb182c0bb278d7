"""The solver, against brute force on small graphs and published chromatic numbers of large ones."""

import json
import os
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_coloring_cases import graphs
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.graph_coloring import solver
from evorun.tasks.graph_coloring.graph import Graph, make_graph, random_graph

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
DIMACS = TEST_DATA / "puzzles" / "graph_coloring.jsonl"
SLOW = {"dimacs/myciel6", "dimacs/myciel7", "dimacs/queen8_8"}
"""Those whose proof takes longer than the solver's limit, or than anybody waits."""

needs_dimacs = pytest.mark.skipif(not DIMACS.exists(), reason="needs the DIMACS graphs; set EVORUN_TEST_DATA")


@cache
def dimacs() -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in map(json.loads, DIMACS.read_text().splitlines())}


def dimacs_graph(name: str) -> Graph:
    record = dimacs()[name]
    return make_graph(record["n"], [(u, v) for u, v in record["edges"]])


def names() -> list[str]:
    return sorted(dimacs()) if DIMACS.exists() else []


def clashes(of: Graph, coloring: Any) -> int:
    return sum(coloring[u] == coloring[v] for u, v in of.edges)


def fewest_by_brute_force(of: Graph, k: int) -> int:
    return min(clashes(of, coloring) for coloring in product(range(k), repeat=of.vertices))


@given(graphs(most=7), st.integers(1, 4))
def test_small_graphs_by_brute_force(of: Graph, k: int) -> None:
    fewest = fewest_by_brute_force(of, k)
    best = solver.best(of, k)
    assert best.proven
    assert best.conflicts == clashes(of, best.coloring) == fewest
    assert set(best.coloring) <= set(range(k))
    decided = solver.color(of, k)
    assert decided.proven
    assert (decided.coloring is not None) == (fewest == 0)
    if decided.coloring is not None:
        assert clashes(of, decided.coloring) == 0
        assert set(decided.coloring) <= set(range(k))


@given(graphs(most=6))
def test_chromatic_numbers_by_brute_force(of: Graph) -> None:
    found = solver.chromatic(of)
    assert found.lower == found.upper == next(k for k in range(1, 7) if fewest_by_brute_force(of, k) == 0)
    assert clashes(of, found.coloring) == 0
    assert set(found.coloring) <= set(range(found.upper))


@pytest.mark.parametrize(
    ("of", "number"),
    [
        (make_graph(1, []), 1),
        (make_graph(40, []), 1),
        (make_graph(12, combinations(range(12), 2)), 12),
        (make_graph(30, [(v, (v + 1) % 30) for v in range(30)]), 2),
        (make_graph(31, [(v, (v + 1) % 31) for v in range(31)]), 3),
        (make_graph(400, [(u, v) for u in range(200) for v in range(200, 400) if (u * v) % 7]), 2),
    ],
)
def test_graphs_whose_number_is_plain(of: Graph, number: int) -> None:
    found = solver.chromatic(of)
    assert (found.lower, found.upper) == (number, number)


@needs_dimacs
@pytest.mark.sample(8)
@pytest.mark.parametrize("name", [name for name in names() if name not in SLOW])
def test_published_chromatic_numbers_are_proven(name: str) -> None:
    found = solver.chromatic(dimacs_graph(name))
    assert found.lower == found.upper == dimacs()[name]["chromatic_number"]
    assert clashes(dimacs_graph(name), found.coloring) == 0


@needs_dimacs
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(SLOW))
def test_published_chromatic_numbers_lie_between_bounds(name: str) -> None:
    found = solver.chromatic(dimacs_graph(name), work=0.1)
    assert found.lower < found.upper == dimacs()[name]["chromatic_number"]
    assert found.lower >= len(dimacs()[name]["max_clique_found"])
    assert clashes(dimacs_graph(name), found.coloring) == 0


@pytest.mark.nightly
@needs_dimacs
def test_the_constraint_solver_refutes_what_the_search_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_MAX_STEPS", 1)
    of = dimacs_graph("dimacs/queen6_6")
    assert solver.color(of, 6) == solver.Coloured(None, proven=True)
    assert solver.color(of, 6, work=1e-9) == solver.Coloured(None, proven=False)
    monkeypatch.setattr(solver, "_MAX_LITERALS", 1)
    assert solver.color(of, 6) == solver.Coloured(None, proven=False)


@needs_dimacs
def test_the_constraint_solver_finds_what_the_searches_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_MAX_STEPS", -100)
    monkeypatch.setattr(solver, "_MAX_MOVES", 0)
    of = dimacs_graph("dimacs/queen7_7")
    found = solver.color(of, 7)
    assert found.coloring is not None
    assert clashes(of, found.coloring) == 0


def test_the_local_search_finds_what_branch_and_bound_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    drawn = [(random_graph(12, 0.7, rng), k) for k in (2, 4)]
    exact = [solver.best(of, k) for of, k in drawn]
    assert all(best.proven for best in exact)
    monkeypatch.setattr(solver, "_MAX_EXACT_VERTICES", 0)
    near = [solver.best(of, k) for of, k in drawn]
    assert [best.conflicts for best in near] == [best.conflicts for best in exact]
    assert all(clashes(of, best.coloring) == best.conflicts for (of, _), best in zip(drawn, near, strict=True))


@pytest.mark.nightly
def test_a_large_graph_has_a_good_colouring_without_a_proof_the_same_every_time() -> None:
    of = random_graph(80, 0.3, np.random.default_rng(1))
    best = solver.best(of, 4)
    assert not best.proven
    assert best.conflicts == clashes(of, best.coloring)
    rng = np.random.default_rng(2)
    assert best.conflicts < min(clashes(of, rng.integers(4, size=80)) for _ in range(200)) * 0.8
    assert solver.best(of, 4) == best


def test_a_planted_colouring_of_a_large_graph_is_found() -> None:
    rng = np.random.default_rng(3)
    planted = rng.integers(6, size=200)
    edges = [(u, v) for u, v in random_graph(200, 0.5, rng).edges if planted[u] != planted[v]]
    found = solver.color(make_graph(200, edges), 6)
    assert found.coloring is not None
    assert clashes(make_graph(200, edges), found.coloring) == 0


def test_branch_and_bound_that_is_cut_short_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    of = random_graph(14, 0.6, np.random.default_rng(0))
    exact = solver.best(of, 3)
    assert exact.proven
    monkeypatch.setattr(solver, "_MAX_BRANCHES", 3)
    short = solver.best(of, 3)
    assert not short.proven
    assert clashes(of, short.coloring) == short.conflicts >= exact.conflicts > 0

"""The symbolic operators, against the formulas of sections 4.1.6 and 4.1.7."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graph_coloring_cases import TASK, answered, individual, problem
from hypothesis import given
from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Individual

PATH = problem(4, [(0, 1), (1, 2), (2, 3)], 3)
DRAWS = 2000
TOLERANCE = 0.05  # more than four standard errors of a rate over DRAWS


def colors(response: Response) -> list[int]:
    assert response.answer is not None
    return [int(color) for color in response.answer.split(",")]


def vertices_in_conflict(findings: Any) -> set[int]:
    return {vertex for finding in findings if finding[0] != "excess" for vertex in (finding[0], finding[1])}


@st.composite
def parents(draw: st.DrawFn) -> tuple[Problem, Individual, Individual, np.random.Generator]:
    of, first = draw(answered())
    most = draw(st.integers(0, 9))
    size = of.data["vertices"]
    second = draw(st.lists(st.integers(0, of.data["colors"]), min_size=size, max_size=size))
    both = [individual(of, ",".join(map(str, one)), max_errors=most) for one in (first, second)]
    return of, both[0], both[1], np.random.default_rng(draw(st.integers(0, 2**32)))


@given(parents())
def test_a_child_has_each_vertex_from_the_parent_without_a_conflict_there(
    case: tuple[Problem, Individual, Individual, np.random.Generator],
) -> None:
    of, first, second, rng = case
    child = TASK.crossover(of, first, second, rng)
    bad_first, bad_second = (vertices_in_conflict(one.errors.findings) for one in (first, second))
    ones, others = colors(first.response), colors(second.response)
    for vertex, color in enumerate(colors(child)):
        if vertex in bad_first - bad_second:
            assert color == others[vertex]
        elif vertex in bad_second - bad_first:
            assert color == ones[vertex]
        else:
            assert color in (ones[vertex], others[vertex])
    for parent in (second, first):
        if child.answer == parent.response.answer:
            assert child is first.response or child is second.response
    assert TASK.parse(of, child.text).answer == child.answer or child in (first.response, second.response)


@given(parents())
def test_a_mutant_differs_in_one_conflict_vertex_and_in_colours_that_are_not_allowed(
    case: tuple[Problem, Individual, Individual, np.random.Generator],
) -> None:
    of, parent, _, rng = case
    k, findings = of.data["colors"], parent.errors.findings
    before = colors(parent.response)
    child = TASK.mutate(of, parent, rng)
    after = colors(child)
    conflicting = vertices_in_conflict(findings)
    excess_named = any(finding[0] == "excess" for finding in findings)
    changed = {vertex for vertex, color in enumerate(after) if color != before[vertex]}
    beyond = {vertex for vertex, color in enumerate(before) if color >= k}
    assert all(after[vertex] < k for vertex in changed)
    if excess_named:
        assert beyond <= changed
        resolved = changed - beyond
    else:
        resolved = changed
    assert resolved <= conflicting
    assert len(resolved) <= 1
    if conflicting and not excess_named:
        # With one colour there is no other for a vertex that has it.
        assert len(resolved) == 1 or k == 1
    if not changed:
        assert child is parent.response


def test_where_no_conflict_decides_either_parent_gives_a_vertex_with_even_chances() -> None:
    first, second = individual(PATH, "0,0,1,2"), individual(PATH, "1,2,2,1")
    rng = np.random.default_rng(0)
    children = [colors(TASK.crossover(PATH, first, second, rng)) for _ in range(DRAWS)]
    # conflict vertices: 0 and 1 of the first, 1 and 2 of the second
    assert {(child[0], child[2]) for child in children} == {(1, 1)}
    for vertex, own in ((1, 0), (3, 2)):
        assert np.mean([child[vertex] == own for child in children]) == pytest.approx(0.5, abs=TOLERANCE)


def test_every_conflict_vertex_and_every_other_colour_is_drawn_alike() -> None:
    rng = np.random.default_rng(0)
    parent = individual(PATH, "0,0,1,2")
    drawn = Counter(TASK.mutate(PATH, parent, rng).answer for _ in range(DRAWS))
    assert set(drawn) == {"1,0,1,2", "2,0,1,2", "0,1,1,2", "0,2,1,2"}
    assert all(count / DRAWS == pytest.approx(0.25, abs=TOLERANCE) for count in drawn.values())


def test_colours_that_are_not_allowed_become_any_that_is() -> None:
    rng = np.random.default_rng(0)
    parent = individual(PATH, "0,9,0,1")
    drawn = Counter(TASK.mutate(PATH, parent, rng).answer for _ in range(DRAWS))
    assert set(drawn) == {"0,0,0,1", "0,1,0,1", "0,2,0,1"}
    assert all(count / DRAWS == pytest.approx(1 / 3, abs=TOLERANCE) for count in drawn.values())


def test_the_operators_go_by_what_the_detector_said_even_where_it_is_wrong() -> None:
    rng = np.random.default_rng(0)
    hallucinated = individual(PATH, "0,1,0,1", findings=[[2, 3, 0]])
    mutants = [colors(TASK.mutate(PATH, hallucinated, rng)) for _ in range(50)]
    assert all(mutant[:2] == [0, 1] and mutant != [0, 1, 0, 1] for mutant in mutants)
    silent = individual(PATH, "0,0,9,9", max_errors=0)
    assert TASK.mutate(PATH, silent, rng) is silent.response
    crossed = colors(TASK.crossover(PATH, hallucinated, individual(PATH, "2,2,1,2", findings=[]), rng))
    assert crossed[2:] == [1, 2]


def test_an_individual_without_an_answer_gives_way() -> None:
    rng = np.random.default_rng(0)
    none, other, some = individual(PATH, None), individual(PATH, None), individual(PATH, "0,1,0,1")
    assert TASK.crossover(PATH, none, some, rng) is some.response
    assert TASK.crossover(PATH, some, none, rng) is some.response
    assert TASK.crossover(PATH, none, other, rng) is none.response
    assert TASK.mutate(PATH, none, rng) is none.response

"""Graphs, answers and individuals for the tests of graph colouring."""

from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.graph_coloring.graph import Graph, make_graph
from evorun.tasks.graph_coloring.graph_coloring import GraphColoring

TASK = GraphColoring()


def problem(vertices: int, edges: Any, colors: int) -> Problem:
    made = make_graph(vertices, edges)
    data = {"vertices": vertices, "colors": colors, "edges": made.edges}
    return Problem(id="p", stratum=f"{vertices} vertices", data=data)


def individual(of: Problem, answer: str | None, max_errors: int = 99, findings: Any = None) -> Individual:
    response = Response(text="as it came", answer=answer)
    verified = TASK.verified(of, response, max_errors)
    errors = verified.errors if findings is None else Diagnosis(findings=tuple(findings))
    return Individual(response=response, fitness=verified.fitness, errors=errors)


@st.composite
def graphs(draw: st.DrawFn, most: int = 9) -> Graph:
    vertices = draw(st.integers(1, most))
    pairs = list(combinations(range(vertices), 2))
    joined = draw(
        st.integers(0, 2 ** len(pairs) - 1)
    )  # one draw for all pairs: a list would take most of the tests' time
    return make_graph(vertices, [pair for bit, pair in enumerate(pairs) if joined >> bit & 1])


@st.composite
def problems(draw: st.DrawFn, most: int = 9) -> Problem:
    made = draw(graphs(most))
    return problem(made.vertices, made.edges, draw(st.integers(1, 5)))


@st.composite
def answered(draw: st.DrawFn) -> tuple[Problem, list[int]]:
    """A problem and colours for it: few, so that right ones come up, and now and then far out of range."""
    of = draw(problems())
    colors = st.integers(0, of.data["colors"] - 1) | st.integers(0, of.data["colors"] + 2) | st.integers(0, 999_999)
    size = of.data["vertices"]
    narrow = st.lists(st.integers(0, of.data["colors"] - 1), min_size=size, max_size=size)
    return of, draw(narrow | st.lists(colors, min_size=size, max_size=size))

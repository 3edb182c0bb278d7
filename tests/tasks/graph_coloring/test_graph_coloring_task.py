"""The task as a run meets it: generated graphs, prompts, gold answers, and what plays the model."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from graph_coloring_cases import TASK, problem

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.models.base import Request
from evorun.simulation.skill import Skill
from evorun.tasks.base import Problem
from evorun.tasks.graph_coloring.graph import random_graph
from evorun.tasks.graph_coloring.graph_coloring import MATRIX_VERTICES, SolvedGraph

SHARE_COLORABLE = 22_249_524_024 / 2**36
PAPER = load_task("graph_coloring")
PATH = problem(4, [(0, 1), (1, 2), (2, 3)], 2)


def colorable(of: Problem) -> bool:
    edges = of.data["edges"]
    return any(
        all(coloring[u] != coloring[v] for u, v in edges)
        for coloring in product(range(of.data["colors"]), repeat=of.data["vertices"] - 1)
        for coloring in [(0, *coloring)]
    )


# --- generated graphs ---


def test_edges_are_sorted_pairs_that_join_at_the_given_rate() -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros((9, 9))
    for _ in range(3000):
        of = random_graph(9, 0.3, rng)
        assert list(of.edges) == sorted(set(of.edges))
        for u, v in of.edges:
            counts[u, v] += 1
    rates = [counts[pair] / 3000 for pair in combinations(range(9), 2)]
    assert counts.sum() == pytest.approx(sum(rates) * 3000)  # no other pair, so u < v
    assert rates == pytest.approx([0.3] * 36, abs=0.04)
    assert random_graph(5, 0, rng).edges == ()
    assert len(random_graph(5, 1, rng).edges) == 10


@pytest.mark.nightly
def test_the_share_of_colourable_graphs_is_the_one_that_the_docs_name() -> None:
    drawn = load_task("graph_coloring", instances=100, validation_instances=0, draw_seed=7)
    share = np.mean([colorable(one) for one in drawn.problems])
    assert share == pytest.approx(SHARE_COLORABLE, abs=4 * (SHARE_COLORABLE * (1 - SHARE_COLORABLE) / 100) ** 0.5)


def test_only_colourable_graphs_on_request() -> None:
    drawn = load_task("graph_coloring", colorable_only=True)
    assert len(drawn.problems) == 50
    assert all(colorable(one) for one in drawn.problems)
    assert not all(colorable(one) for one in PAPER.problems)


def test_as_many_colours_as_each_graph_needs() -> None:
    drawn = load_task("graph_coloring", colors=None, instances=4, validation_instances=0)
    for one in drawn.problems:
        fewer = Problem(id="", stratum="", data={**one.data, "colors": one.data["colors"] - 1})
        assert colorable(one)
        assert not colorable(fewer)


def test_graphs_of_hundreds_of_vertices() -> None:
    config = task_config(
        "graph_coloring", vertices=300, edge_probability=0.05, colors=7, colorable_only=True, instances=2
    )
    config.validation_instances = 0
    loaded = config.load()
    assert [one.stratum for one in loaded.problems] == ["300 vertices"] * 2
    skilled = loaded.simulator.with_skill(Skill(skill=1, malformed=0))
    for one in loaded.problems:
        prompt = loaded.task.generation_prompt(one)  # type: ignore[attr-defined]
        text = skilled.respond(Request(messages=(), hints=prompt.hints), np.random.default_rng(0))
        assert TASK.measure(one, loaded.task.parse(one, text).answer).correct


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"vertices": 0}, "task.vertices"),
        ({"vertices": 1001}, "task.vertices"),
        ({"colors": 0}, "task.colors"),
        ({"edge_probability": 1.1}, "task.edge_probability"),
        ({"edge_probability": float("nan")}, "task.edge_probability"),
        ({"split": "test"}, "task.split"),
    ],
)
def test_values_out_of_range_name_their_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        task_config("graph_coloring", **changes)


def test_too_few_different_graphs() -> None:
    with pytest.raises(
        DataError, match=r"expected 50 .* evaluation split, found [0-8]; lower task\.instances, .* task\.v"
    ):
        load_task("graph_coloring", vertices=3)
    with pytest.raises(DataError, match="found 0"):
        load_task("graph_coloring", vertices=4, edge_probability=1, colorable_only=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, "task.instances"),
        ({"instances": 1, "validation_instances": 50}, "task.validation_instances"),
        ({"split": "training"}, "task.training_instances"),
    ],
)
def test_what_leaves_too_few_colourable_graphs_is_named(changes: dict[str, Any], size: str) -> None:
    with pytest.raises(DataError) as caught:
        load_task("graph_coloring", colors=2, colorable_only=True, **changes)
    for key in (f"lower {size},", "task.colorable_only", "task.colors (2)", "task.edge_probability (0.5)"):
        assert key in str(caught.value)


# --- gold answers ---


def test_gold_answers_pass_the_grader_and_none_does_better_where_there_is_no_right_one() -> None:
    for shot in PAPER.validation:
        right = TASK.score(shot.problem, TASK.response(shot.answer), None)
        assert right.correct == colorable(shot.problem)
        if not right.correct:
            # colours may change places: the first vertex has the first one
            every = (TASK.measure(shot.problem, ",".join(map(str, (0, *c)))) for c in product(range(3), repeat=8))
            assert right.scores["conflict_ratio"] == min(measure.scores["conflict_ratio"] for measure in every)


# --- what is shown ---


@pytest.mark.parametrize(
    ("of", "rule"),
    [
        (problem(3, [(0, 1)], 3), "100 * (1 - C / 1) if X is 0, and 0.0 if it is not"),
        (problem(3, [], 2), "100 * (1 - X / 1)"),
        (problem(2, [], 2), "100 if X is 0, and 0.0 if it is not"),
    ],
)
def test_the_fitness_rule_has_no_division_by_zero(of: Problem, rule: str) -> None:
    text = str(TASK.fitness_prompt(of, TASK.response("0,0")).messages[-1]["content"])
    assert rule in text
    assert "/ 0" not in text


def test_large_graphs_are_shown_by_their_edges() -> None:
    def shown(vertices: int) -> str:
        of = problem(vertices, [(0, 3), (0, 2), (2, 5)], 2)
        return str(TASK.generation_prompt(of).messages[-1]["content"])

    assert "n n y y n" in shown(MATRIX_VERTICES)
    assert "0: 2 3\n2: 5\n" in shown(MATRIX_VERTICES + 1)
    assert "adjacency matrix" not in shown(MATRIX_VERTICES + 1)


def test_nothing_shown_tells_whether_a_graph_is_colourable() -> None:
    def words(of: Problem) -> str:
        text = str(TASK.generation_prompt(of).messages[-1]["content"])
        return of.stratum + "".join(line for line in text.splitlines() if not set(line) <= set("yn "))

    some = {colorable(one): words(one) for one in PAPER.problems}
    assert some[True] == some[False]


# --- what plays the model ---


def solved(of: Problem, solution: str) -> SolvedGraph:
    return SolvedGraph(TASK, of, solution)


def agreement(first: str, second: str) -> float:
    return float(np.mean([a == b for a, b in zip(first.split(","), second.split(","), strict=True)]))


WIDE = problem(600, [(v, v + 1) for v in range(599)], 3)
GOLD = ",".join(str(v % 3) for v in range(600))


@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_from_scratch_each_vertex_is_right_at_its_skill(skill: float) -> None:
    answer = solved(WIDE, GOLD).attempt(skill, np.random.default_rng(0))
    assert agreement(answer, GOLD) == pytest.approx(skill, abs=0.08)
    assert TASK.read_answer(WIDE, answer) == answer
    beyond = answer.count("3") / 600
    assert beyond == pytest.approx(0.1 * (1 - skill), abs=0.06)


def test_revising_chooses_mends_and_loses_at_the_given_rates() -> None:
    # Two thirds of each answer agree with the known colouring, so that it keeps its colours' names.
    first = ",".join(str(v % 3 if v % 6 < 4 else (v + 1) % 3) for v in range(600))
    second = ",".join(str(v % 3 if v % 6 > 1 else (v + 1) % 3) for v in range(600))
    puzzle, rng = solved(WIDE, GOLD), np.random.default_rng(1)

    def revised(choice: float, repair: float, slip: float) -> float:
        return agreement(puzzle.revise([first, second], choice, repair, slip, rng), GOLD)

    assert revised(1, 0, 0) == 1
    assert revised(0, 0, 0) == pytest.approx(1 / 3)
    assert revised(0.75, 0, 0) == pytest.approx(1 / 3 + 0.75 * 2 / 3, abs=0.08)
    assert revised(0, 1, 0) == 1
    assert revised(0, 0.5, 0) == pytest.approx(2 / 3, abs=0.08)
    assert revised(1, 0, 0.3) == pytest.approx(0.7, abs=0.08)
    assert revised(1, 1, 1) == 0


def test_other_names_for_the_colours_are_as_right() -> None:
    renamed = GOLD.translate(str.maketrans("012", "201"))
    puzzle = solved(WIDE, GOLD)
    assert puzzle.revise([renamed], 0.5, 1, 0, np.random.default_rng(0)) == renamed
    nearly = ",".join(["9", *renamed.split(",")[1:]])
    assert puzzle.revise([nearly], 0.5, 1, 0, np.random.default_rng(0)) == renamed
    assert puzzle.revise(["9,9" + ",8" * 598], 0, 1, 0, np.random.default_rng(0)).count(",") == 599


def test_an_answer_as_good_as_the_known_one_is_not_spoilt() -> None:
    other = ",".join(str(v % 2) for v in range(600))
    assert solved(WIDE, GOLD).revise([other, GOLD], 1, 1, 0, np.random.default_rng(0)) == other


def test_one_colour_leaves_no_other_to_err_with_but_those_that_are_not_allowed() -> None:
    of = problem(3, [], 1)
    assert solved(of, "0,0,0").attempt(0, np.random.default_rng(0)) == "1,1,1"

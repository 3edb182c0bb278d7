"""The task as it is loaded: instances, what of them is shown, and what stays hidden."""

import asyncio
from itertools import pairwise, permutations
from typing import Any

import msgspec
import numpy as np
import pytest
from tsp_fixture import TEST_DATA, tsplib_records

from building import load_task, task_config
from evorun.errors import ConfigError
from evorun.runs.candidates import Response
from evorun.tasks.base import LoadedTask

NO_TOOLS: Any = None
LOADED = load_task("tsp")


def gold(loaded: LoadedTask) -> list[str]:
    simulator: Any = loaded.simulator
    return [puzzle.attempt(1.0, np.random.default_rng(0)) for puzzle in simulator._puzzles.values()]


def test_instances_are_those_of_the_paper() -> None:
    assert len(LOADED.problems) == 50
    assert len(LOADED.validation) == 8
    for problem in LOADED.problems:
        points, distances = np.array(problem.data["coordinates"]), problem.data["distances"]
        assert points.shape == (10, 2)
        assert (points >= 0).all()
        assert (points <= 100).all()
        for i, j in permutations(range(10), 2):
            assert distances[i][j] == distances[j][i] == round(float(np.linalg.norm(points[i] - points[j])), 2)
        assert all(distances[i][i] == 0 for i in range(10))
    everywhere = np.concatenate([problem.data["coordinates"] for problem in LOADED.problems])
    assert abs(everywhere.mean() - 50) < 4.5  # five standard errors
    assert abs(everywhere.std() - 28.9) < 3


@pytest.mark.parametrize("cities", [3, 4, 7])
def test_gold_routes_are_the_shortest_of_all_and_graded_correct(cities: int) -> None:
    loaded = load_task("tsp", instances=4, validation_instances=0, cities=cities, side=3.0)
    for problem, answer in zip(loaded.problems, gold(loaded), strict=True):
        grade = asyncio.run(loaded.grader.grade(problem, Response(text="", answer=answer), NO_TOOLS))
        assert grade.correct
        assert grade.scores["penalised_score"] == 100
        d, route = problem.data["distances"], [int(city) for city in answer.split(",")]
        used = sum(d[u][v] for u, v in pairwise(route))
        ways = ((0, *order, 0) for order in permutations(range(1, cities)))
        assert used == pytest.approx(min(sum(d[u][v] for u, v in pairwise(w)) for w in ways))


def test_problems_hold_neither_the_optimum_nor_a_route() -> None:
    for problem, answer in zip(LOADED.problems, gold(LOADED), strict=False):
        assert set(problem.data) == {"cities", "distances", "coordinates"}
        shown = msgspec.json.encode(problem).decode()
        assert answer not in shown
        route = [int(city) for city in answer.split(",")]
        d = problem.data["distances"]
        optimum = sum(d[u][v] for u, v in pairwise(route))
        assert f"{optimum:.2f}" not in shown


def test_prompts_show_the_matrix_and_the_form() -> None:
    task: Any = LOADED.task
    problem = LOADED.problems[0]
    rows = [" ".join(f"{value:.2f}" for value in row) for row in problem.data["distances"]]
    text = task.generation_prompt(problem).messages[0]["content"]
    assert "\n".join(rows) in text
    assert "0 to 9" in text
    assert "11 city numbers" in text


def test_whole_distances_are_shown_without_decimals() -> None:
    tsplib_records()
    loaded = load_task("tsp", data=str(TEST_DATA), instances=3, validation_instances=2)
    assert len(loaded.problems) == 3
    text = loaded.task.generation_prompt(loaded.problems[0]).messages[0]["content"]  # type: ignore[attr-defined]
    assert "\n0 153 510 706 " in text
    assert loaded.provenance.source == "stand_in"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"cities": 2}, "task.cities"),
        ({"cities": 121}, "task.cities"),
        ({"side": 0.0}, "task.side"),
        ({"side": float("nan")}, "task.side"),
        ({"side": 1e9}, "task.side"),
        ({"instances": 0}, "task.instances"),
    ],
)
def test_settings_out_of_range_are_named(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        task_config("tsp", **changes)

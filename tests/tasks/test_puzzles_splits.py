"""The generated instances of each split, and that nothing is drawn or solved but what is used."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from building import load_task, make_method, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.base import Problem
from evorun.tasks.graph_coloring import solver
from evorun.tasks.sudoku.instances import SudokuConfig
from evorun.tasks.tsp.solver import optimal_route

SMALL: list[tuple[str, dict[str, Any]]] = [
    ("sudoku", {"box": 2, "empty_cells": 1}),
    ("sudoku", {"box": 2, "empty_cells": 8}),
    ("graph_coloring", {"vertices": 5}),
    ("tsp", {"cities": 3, "side": 0.1}),
]
"""Spaces of a few hundred or thousand instances, of which as many are drawn as are likely to meet."""


def identities(problems: Iterable[Problem]) -> set[bytes]:
    """Return the problems' identities; other coordinates with the same distances make no other instance."""
    return {msgspec.json.encode({**problem.data, "coordinates": None}) for problem in problems}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "changes"), SMALL)
def test_splits_of_any_sizes_share_no_instance(name: str, changes: dict[str, Any]) -> None:
    evaluation, validation = set[bytes](), set[bytes]()

    def load(**sizes: int | str) -> set[bytes]:
        loaded = load_task(name, **changes, **sizes)
        ids = [*(problem.id for problem in loaded.problems), *(shot.problem.id for shot in loaded.validation)]
        assert len(set(ids)) == len(ids)
        validation.update(identities(shot.problem for shot in loaded.validation))
        return identities(loaded.problems)

    for instances, held_out, draw_seed in ((60, 1, 0), (5, 60, 0), (30, 30, 1)):
        evaluation |= load(instances=instances, validation_instances=held_out, draw_seed=draw_seed)
    training = load(split="training", training_instances=60, instances=1, draw_seed=2)
    assert min(len(evaluation), len(validation), len(training)) > 30
    assert not training & evaluation
    assert not training & validation
    assert not evaluation & validation


def test_no_two_sudoku_splits_share_a_solved_grid() -> None:
    rng = np.random.default_rng(0)

    def grids(**sizes: int | str) -> tuple[set[str], set[str]]:
        loaded = load_task("sudoku", **{"box": 2, "empty_cells": 8, **sizes})
        known: Any = loaded.simulator
        own = {known._puzzles[problem.id].attempt(1.0, rng) for problem in loaded.problems}
        return own, {shot.answer for shot in loaded.validation}

    evaluation, held_out = grids(instances=80, validation_instances=80)
    training, _ = grids(split="training", training_instances=80)
    assert not evaluation & training
    assert not held_out & (evaluation | training)


def test_a_split_is_the_same_whatever_the_others_sizes() -> None:
    for split, own in (("evaluation", {"instances": 9}), ("training", {"training_instances": 9})):
        first = load_task("graph_coloring", split=split, **own, validation_instances=2)
        second = load_task("graph_coloring", split=split, instances=9, training_instances=9, validation_instances=5)
        assert first.problems == second.problems
        assert first.validation == second.validation[:2]
        limited = load_task("graph_coloring", split=split, **own, limit=4, validation_instances=2)
        assert limited.problems == first.problems[:4]
        assert limited.validation == first.validation
        other = load_task("graph_coloring", split=split, **own, draw_seed=1)
        assert not identities(other.problems) & identities(first.problems)


def test_only_what_is_used_is_solved() -> None:
    with patch("evorun.tasks.graph_coloring.solver.best", wraps=solver.best) as graphs:
        load_task("graph_coloring", limit=3, validation_instances=2)
    assert graphs.call_count == 5
    with patch("evorun.tasks.tsp.instances.optimal_route", wraps=optimal_route) as routes:
        load_task("tsp", split="training", limit=3, validation_instances=0)
    assert routes.call_count == 3


def test_only_what_is_used_of_a_file_is_solved(tmp_path: Path) -> None:
    square = "12343412214343.."
    unsolvable = "11.............."
    path = tmp_path / "four.txt"
    path.write_text("\n".join([f"{square[:15]}.", unsolvable, f".{square[1:14]}..", "nonsense"]))
    loaded = load_task("sudoku", data=str(path), instances=2, validation_instances=1, limit=1)
    assert [problem.id for problem in loaded.problems] == ["line_0001"]
    assert [shot.problem.id for shot in loaded.validation] == ["line_0003"]
    with pytest.raises(DataError, match=r"four\.txt:2"):
        load_task("sudoku", data=str(path), instances=2, validation_instances=1)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (task_config("sudoku", instances=1, validation_instances=0), "task.validation_instances"),
        (task_config("mathbench", source="sample", validation_per_stratum=0), "task.validation_per_stratum"),
    ],
)
def test_errors_name_the_key_that_the_task_has(config: Any, key: str) -> None:
    held_out = [shot.problem for shot in config.load().validation]
    for method in (make_method("few_shot"), make_method("gepa")):
        with pytest.raises(ConfigError, match=f"raise {key}"):
            method.check(config.task_class, held_out)


def test_a_process_draws_the_same_instances_once() -> None:
    settings = {"box": 2, "empty_cells": 7, "instances": 3, "validation_instances": 1}
    first = load_task("sudoku", **settings)
    with patch.object(SudokuConfig, "draft", side_effect=AssertionError):
        again = load_task("sudoku", **settings)
        for other in ({"draw_seed": 5}, {"empty_cells": 6}, {"instances": 4}):
            with pytest.raises(AssertionError):
                load_task("sudoku", **{**settings, **other})
    assert again.problems == first.problems
    assert again.validation == first.validation

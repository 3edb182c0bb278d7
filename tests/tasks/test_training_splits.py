"""What weights are trained on: problems with a grader of their own, and none that results are reported on."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from building import task_config
from evorun.errors import ConfigError, DataError
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.runner import registry
from evorun.tasks.base import LoadedTask, TaskConfig

NO_TOOLS: Any = None
SMALL: dict[str, dict[str, Any]] = {
    "aime": {"source": "sample"},
    "arithmetic": {"largest_operand": 9, "train_problems": 30, "test_problems": 30, "validation_problems": 4},
    "beyond_aime": {"source": "sample"},
    "dapo_aime25": {"source": "sample"},
    "graph_coloring": {"vertices": 5, "colorable_only": True, "instances": 30, "training_instances": 30},
    "hmmt": {"source": "sample"},
    "livecodebench": {"source": "sample", "validation_per_stratum": 1},
    "math500": {"source": "sample"},
    "mathbench": {"source": "sample", "validation_per_stratum": 3},
    "sudoku": {"box": 2, "empty_cells": 2, "instances": 60, "training_instances": 60},
    "tsp": {"cities": 4, "instances": 20, "training_instances": 20},
}


def config_of(name: str, **changes: Any) -> TaskConfig:
    made: TaskConfig = task_config(name, **{**SMALL[name], **changes})
    return made


def identities(loaded: LoadedTask) -> set[Any]:
    return {key for problem in loaded.problems for key in (problem.id, msgspec.json.encode(problem.data))}


@pytest.mark.parametrize("name", registry.TASKS)
def test_no_problem_to_train_on_is_one_that_is_worked_on(name: str) -> None:
    training = config_of(name).training(0)
    assert len(identities(training)) == 2 * len(training.problems) > 0
    assert not identities(training) & identities(config_of(name).load(0))
    assert not training.validation


@pytest.mark.parametrize("name", registry.TASKS)
def test_the_same_problems_come_again_whatever_the_limit(name: str) -> None:
    training, again = config_of(name, limit=2).training(0), config_of(name).training(0)
    assert training.problems == again.problems
    assert training.provenance == again.provenance
    assert training.provenance.digest != config_of(name).load(0).provenance.digest


@pytest.mark.parametrize("name", sorted({*registry.TASKS} - {"livecodebench"}))
async def test_the_grader_knows_the_answers(name: str) -> None:
    """The simulator that never errs writes right answers to these problems, too."""
    training = config_of(name).training(0)
    task: Any = training.task
    perfect = training.simulator.with_skill(Skill(skill=1, malformed=0))
    for problem in training.problems:
        prompt = task.generation_prompt(problem)
        text = perfect.respond(Request(messages=prompt.messages, hints=prompt.hints), np.random.default_rng(0))
        grade = await training.grader.grade(problem, task.parse(problem, text), NO_TOOLS)
        assert grade.correct


def contests(folder: Path, **questions: list[int]) -> str:
    for split, numbers in questions.items():
        lines = [msgspec.json.encode({"problem": f"Is it {n}?", "answer": n}) + b"\n" for n in numbers]
        (folder / f"{split}.jsonl").write_bytes(b"".join(lines))
    return str(folder)


def contest_on(data: str, **changes: Any) -> Any:
    plain = {"name": "", "hub": [], "years": None, "contests": None, "size": None, "draw": None}
    train, test = plain | {"files": ["train.jsonl"]}, plain | {"files": ["test.jsonl"]}
    return task_config("beyond_aime", data=data, train=train, test=test, **changes)


def test_contests_train_on_what_is_not_tested_though_it_stands_in_both_files(tmp_path: Path) -> None:
    data = contests(tmp_path, train=[1, 2, 3, 4], test=[3, 4, 5])
    training = contest_on(data, limit=1, validation_problems=2).training(0)
    assert {problem.data["problem"] for problem in training.problems} == {"Is it 1?", "Is it 2?"}
    with pytest.raises(DataError, match=r"all problems of its files .* are in the test split too"):
        contest_on(contests(tmp_path, train=[5], test=[3, 4, 5])).training(0)


def test_a_file_of_problems_to_work_on_is_not_trained_on(tmp_path: Path) -> None:
    contests(tmp_path, test=[1, 2])
    with pytest.raises(DataError, match="holds the test split only"):
        contest_on(str(tmp_path / "test.jsonl")).training(0)
    grids = tmp_path / "grids.txt"
    grids.write_text("12343412214343..\n")
    with pytest.raises(ConfigError, match=r"task\.data: .* no training split"):
        task_config("sudoku", data=str(grids), instances=1, validation_instances=0).training(0)


@pytest.mark.parametrize(
    ("name", "split"), [("aime", "train"), ("arithmetic", "train"), ("sudoku", "training"), ("tsp", "training")]
)
def test_a_run_on_the_training_split_has_no_other_problems_to_train_on(name: str, split: str) -> None:
    with pytest.raises(ConfigError, match=r"^task\.split: expected (test|evaluation) .*, got train"):
        config_of(name, split=split).training(0)


def test_a_task_without_a_training_split_trains_on_its_validation_split() -> None:
    config = task_config("mathbench", source="sample", validation_per_stratum=2)
    training = config.training(3)
    assert list(training.problems) == [shot.problem for shot in config.load(3).validation]
    assert training.provenance.source == "sample"
    assert training.provenance.description.startswith("validation split of evorun's own sample set")
    with pytest.raises(DataError, match=r"raise task\.validation_per_stratum"):
        task_config("mathbench", source="sample", validation_per_stratum=0).training(0)

"""Weights are trained on problems with a grader of their own, and on none that results are reported on."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import task_config
from evorun.errors import ConfigError, DataError

NO_TOOLS: Any = None


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
    training = contest_on(data, limit=1, validation_problems=2).load_training()
    assert {problem.data["problem"] for problem in training.problems} == {"Is it 1?", "Is it 2?"}
    with pytest.raises(DataError, match=r"all problems of its files .* are in the test split too"):
        contest_on(contests(tmp_path, train=[5], test=[3, 4, 5])).load_training()


def test_a_file_of_problems_to_work_on_is_not_trained_on(tmp_path: Path) -> None:
    contests(tmp_path, test=[1, 2])
    with pytest.raises(DataError, match="holds the test split only"):
        contest_on(str(tmp_path / "test.jsonl")).load_training()
    grids = tmp_path / "grids.txt"
    grids.write_text("12343412214343..\n")
    with pytest.raises(ConfigError, match=r"task\.data: .* no training split"):
        task_config("sudoku", data=str(grids), instances=1, validation_instances=0).load_training()


@pytest.mark.parametrize(
    ("name", "split"), [("aime", "train"), ("arithmetic", "train"), ("sudoku", "training"), ("tsp", "training")]
)
def test_a_run_on_the_training_split_has_no_other_problems_to_train_on(name: str, split: str) -> None:
    with pytest.raises(ConfigError, match=r"^task\.split: expected (test|evaluation) .*, got train"):
        task_config(name, split=split).load_training()


def test_a_task_without_a_training_split_trains_on_its_validation_split() -> None:
    config = task_config("mathbench", source="sample", validation_per_stratum=2)
    training = config.load_training()
    assert list(training.problems) == [shot.problem for shot in config.load().validation]
    assert training.provenance.source == "sample"
    assert training.provenance.description.startswith("validation split of evorun's own sample set")
    with pytest.raises(DataError, match=r"raise task\.validation_per_stratum"):
        task_config("mathbench", source="sample", validation_per_stratum=0).load_training()

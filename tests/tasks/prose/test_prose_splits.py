"""The records of each split, whatever the files: shown on essays, whose records are the simplest."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks import benchmark_files
from evorun.tasks.base import LoadedTask
from prose_data import ids, write


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)


def prompts(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"Write about the number {n}."} for n in range(start, start + count)]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Return a folder with one file that both splits are drawn from."""
    write(tmp_path / "prompts.jsonl", prompts(30))
    return tmp_path


def essays(folder: Path, **settings: Any) -> LoadedTask:
    return load_task("essay", **{"data": str(folder), "validation_problems": 4, "test_problems": 10, **settings})


def test_two_splits_are_drawn_from_one_file(pool: Path) -> None:
    test, train = essays(pool), essays(pool, split="train")
    assert (len(test.problems), len(train.problems), len(test.validation)) == (10, 20, 4)
    assert not set(ids(test)) & set(ids(train))
    assert [one.problem.id for one in test.validation] == ids(train)[:4]
    assert ids(essays(pool / "prompts.jsonl")) == ids(test)
    assert set(ids(essays(pool, draw_seed=1))) != set(ids(test))
    # A smaller draw, and a limit, are the beginning of a larger one; the other split's size changes nothing.
    assert ids(essays(pool, test_problems=6)) == ids(test)[:6]
    assert ids(essays(pool, limit=3, train_problems=5)) == ids(test)[:3]
    assert ids(essays(pool, split="train", train_problems=7)) == ids(train)[:7]


def test_what_is_tested_on_is_not_trained_on_even_from_files_of_their_own(tmp_path: Path) -> None:
    repeated = [{"id": "other", "prompt": "Write about the number 3."}]
    write(tmp_path / "train_a.jsonl", [*prompts(6, 100), *repeated])
    write(tmp_path / "test_a.jsonl", prompts(5))
    loaded = task_config("essay", data=str(tmp_path), limit=2)
    training = loaded.load_training()
    assert len(training.problems) == 6
    assert "other" not in ids(training)
    assert training.validation == ()
    assert len(loaded.load().validation) == 6  # 12 are asked for
    with pytest.raises(ConfigError, match=r"task.split: expected test for a run that trains"):
        task_config("essay", data=str(tmp_path), split="train").load_training()


def test_results_tell_the_benchmark_from_part_of_it(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(pool / "prompts.jsonl", [*prompts(30), *prompts(1)])
    part = essays(pool).provenance
    assert part.source == "stand_in"
    assert "10 problems of the test split" in part.description
    assert "of which 31 records of 4096 are there" in part.description
    assert "1 left out" in part.description
    monkeypatch.setattr("evorun.tasks.essay.essay.EssayConfig.sizes", {"train": 31, "test": 31})
    assert essays(pool).provenance.source == "benchmark"
    assert essays(pool, test_problems=11).provenance.digest != part.digest
    sample = load_task("essay", source="sample")
    assert (sample.provenance.source, len(sample.problems), len(sample.validation)) == ("sample", 8, 12)


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"prompt": " "}, "prompt: expected a non-empty string"),
        ({"text": "x"}, "prompt: expected a non-empty string, got None"),
        ([], "expected a JSON object, got list"),
        ({"id": "a", "prompt": "x"}, "id 'a' is already used in .*:1"),
    ],
)
def test_malformed_records_are_named(pool: Path, record: Any, error: str) -> None:
    path = write(pool / "prompts.jsonl", [{"id": "a", "prompt": "first"}, record])
    with pytest.raises(DataError, match=re.escape(f"{path}:2: ") + error):
        essays(pool)


def test_too_few_problems_say_what_to_lower(pool: Path) -> None:
    with pytest.raises(DataError, match=r"the test split holds 30 problems; expected at least 31 .*task.test_problems"):
        essays(pool, test_problems=31)
    with pytest.raises(DataError, match=r"that are not in the test split; .*lower task.test_problems"):
        essays(pool, test_problems=None)
    assert len(essays(pool, test_problems=None, validation_problems=0).problems) == 30
    with pytest.raises(DataError, match=r"the train split holds 20 problems; expected at least 21"):
        essays(pool, split="train", train_problems=21)
    write(pool / "prompts.jsonl", [])
    with pytest.raises(DataError, match=r"expected problems of the test split, the files .* hold none"):
        essays(pool)


def test_nothing_found_says_what_to_do(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = r"test\*.jsonl or prompts\*.jsonl or test\*.parquet"
    advice = rf"{names}, or a file, as task.data=PATH or \$EVORUN_DATA/essay.*task.source=hub.*task.source=sample"
    with pytest.raises(DataError, match=advice):
        load_task("essay")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "essay").symlink_to(pool)
    monkeypatch.setenv("EVORUN_DATA", str(tmp_path / "data"))
    assert len(load_task("essay", test_problems=7).problems) == 7
    (pool / "prompts.jsonl").unlink()
    with pytest.raises(DataError, match=rf"task.files.test: expected {names} in .*, found none"):
        load_task("essay")


def test_the_hubs_files_of_each_split_are_read(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(hub_id: str, patterns: Sequence[str], asked_by: str) -> Path:
        asked.append((hub_id, *patterns))
        for split, start in (("train", 0), ("test", 20)):
            write(pool / "hub" / "data" / f"{split}-00000-of-00001.jsonl", prompts(8, start))
        return pool / "hub"

    monkeypatch.setattr(benchmark_files, "download", download)
    loaded = load_task("essay", source="hub", validation_problems=3)
    assert asked == [("zaemyung/writing_prompts_collection", f"*{split}*") for split in ("test", "train")]
    assert {one.split("-")[0] for one in ids(loaded)} == {"test"}
    assert {one.problem.id.split("-")[0] for one in loaded.validation} == {"train"}


def test_a_data_set_that_is_on_no_hub_is_asked_for_as_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"^task\.hub\.test: expected hub data sets .*, got none; .*task\.data=PATH$"):
        load_task("ethics", source="hub")
    with pytest.raises(DataError, match=r"^the problems of task=ethics were not found: .*task\.data=PATH") as missing:
        load_task("ethics")
    assert "hub" not in str(missing.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "task.split: expected one of test, train"),
        ({"source": "web"}, "task.source"),
        ({"files": {"train": []}}, "task.files: expected train and test, got train"),
        ({"max_words": 0}, "task.max_words"),
        ({"test_problems": 0}, "task.test_problems"),
        ({"source": "sample", "data": "x"}, "task.data: has no effect with task.source=sample"),
    ],
)
def test_wrong_settings_name_their_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_config("essay", **options)

"""Questions from files, hub and sample; the two splits; and the settings."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from search_fixture import TEST_DATA, config

from evorun.errors import ConfigError, DataError
from evorun.tasks import benchmark_files
from evorun.tasks.base import LoadedTask
from evorun.tasks.search_qa.retrieval.http import Http


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)


def ids(loaded: LoadedTask) -> list[str]:
    return [problem.id for problem in loaded.problems]


def write(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "nq_open.jsonl", [{"question": f"what is {n}", "answers": [str(n)]} for n in range(30)])
    hotpot = [{"id": f"h{n}", "question": f"Is {n} even?", "golden_answers": ["yes"]} for n in range(10)]
    write(tmp_path / "hotpotqa_x.jsonl", hotpot)
    write(tmp_path / "passages.jsonl", [{"id": "p", "title": "T", "text": "one two"}])
    return tmp_path


def of_folder(folder: Path, **settings: Any) -> LoadedTask:
    sizes = {"train_problems": 25, "test_problems": 10, "validation_problems": 4}
    return config(source="auto", data=str(folder), **(sizes | settings)).load()


def test_both_splits_are_drawn_from_both_sets_by_the_seed(folder: Path) -> None:
    test, train = of_folder(folder), of_folder(folder, split="train")
    assert (len(test.problems), len(train.problems), len(test.validation)) == (10, 25, 4)
    assert not set(ids(test)) & set(ids(train))
    assert {one.problem.id for one in test.validation} <= set(ids(train))
    assert {name.split("/")[0] for name in ids(test)} == {"nq", "hotpotqa"}
    assert ids(of_folder(folder)) == ids(test)
    assert ids(of_folder(folder, draw_seed=1)) != ids(test)
    # The size of one split, and a limit, leave the other questions as they are.
    assert ids(of_folder(folder, train_problems=20)) == ids(test)
    assert ids(of_folder(folder, split="train", test_problems=15)) == ids(train)
    assert ids(of_folder(folder, limit=3)) == ids(test)[:3]


def test_the_train_split_is_what_is_trained_on(folder: Path) -> None:
    settings = {"data": str(folder), "source": "auto", "train_problems": 25, "test_problems": 10}
    training = config(**settings, limit=2).load_training()
    assert ids(training) == ids(of_folder(folder, split="train"))
    with pytest.raises(ConfigError, match=r"task.split: expected test for a run that trains"):
        config(**settings, split="train").load_training()


def test_results_tell_the_questions_and_the_corpus(folder: Path) -> None:
    before = of_folder(folder).provenance
    assert before.source == "stand_in"
    assert "10 questions of nq 30, hotpotqa 10" in before.description
    write(folder / "passages.jsonl", [{"id": "p", "title": "T", "text": "one three"}])
    assert of_folder(folder).provenance.digest != before.digest
    other = write(folder / "other.jsonl", [{"id": "p", "title": "T", "text": "one two"}])
    assert of_folder(folder, corpus=str(other)).provenance.digest == before.digest


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"question": " ", "answers": ["x"]}, "question: expected a non-empty string"),
        ({"question": "q"}, "expected accepted answers under answers or golden_answers or answer"),
        ({"question": "q", "answers": []}, "expected accepted answers"),
        ({"question": "q", "answers": ["x", ""]}, "expected accepted answers"),
        ({"id": "a|b", "question": "q", "answers": ["x"]}, "id: expected a string without"),
        ([], "expected a JSON object"),
    ],
)
def test_malformed_records_are_named(folder: Path, record: Any, error: str) -> None:
    path = write(folder / "nq_open.jsonl", [{"question": "what", "answer": "x"}, record])
    with pytest.raises(DataError, match=re.escape(f"{path}:2: ") + error):
        of_folder(folder)


def test_ids_and_questions_that_are_repeated(folder: Path) -> None:
    write(folder / "hotpotqa_x.jsonl", [{"id": "h", "question": f"q{n}", "answers": ["x"]} for n in range(2)])
    with pytest.raises(DataError, match=r":2: id 'hotpotqa/h' is already used in .*:1"):
        of_folder(folder)
    write(folder / "hotpotqa_x.jsonl", [{"question": "what is 3", "answers": ["three"]}] * 9)
    with pytest.raises(DataError, match="expected at least 35 different questions to draw from, found 30"):
        of_folder(folder)


def test_nothing_found_says_what_to_do(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = r"nq_open\*.jsonl, hotpotqa\*.jsonl and passages.jsonl as task.data=FOLDER or \$EVORUN_DATA/search_qa"
    with pytest.raises(DataError, match=rf"{advice}.*task.source=hub.*task.source=sample"):
        config(source="auto").load()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "search_qa").symlink_to(folder)
    monkeypatch.setenv("EVORUN_DATA", str(tmp_path / "data"))
    assert config(source="auto", train_problems=25, test_problems=10).load().problems
    (folder / "passages.jsonl").unlink()
    with pytest.raises(DataError, match=r"passages.jsonl: cannot read the passages: No such file"):
        config(source="auto", train_problems=25, test_problems=10).load()


def test_questions_from_a_hub_need_a_corpus_or_a_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(hub_id: str, patterns: Sequence[str], asked_by: str) -> Path:
        asked.append((hub_id, *patterns))
        kind = patterns[0].split("/")[0]
        (folder / "hub" / kind).mkdir(parents=True, exist_ok=True)
        name = "nq_open.jsonl" if kind == "nq" else "hotpotqa_x.jsonl"
        (folder / "hub" / patterns[0]).write_bytes((folder / name).read_bytes())
        return folder / "hub"

    monkeypatch.setattr(benchmark_files, "download", download)
    settings: dict[str, Any] = {"source": "hub", "train_problems": 25, "test_problems": 10}
    with pytest.raises(ConfigError, match=r"task.corpus: expected a file of passages with task.source=hub"):
        config(**settings).load()
    assert asked == [
        ("RUC-NLPIR/FlashRAG_datasets", "nq/test.jsonl"),
        ("RUC-NLPIR/FlashRAG_datasets", "hotpotqa/dev.jsonl"),
    ]
    assert len(config(**settings, corpus=str(folder / "passages.jsonl")).load().problems) == 10
    served = config(**settings, retriever="http", retriever_url="http://127.0.0.1:1/retrieve").load()
    assert "a search server" in served.provenance.description
    assert isinstance(served.task._retriever, Http)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "task.split: expected one of test, train"),
        ({"source": "web"}, "task.source"),
        ({"retriever": "bing"}, "task.retriever: expected one of bm25, dense, http"),
        ({"max_turns": 0}, "task.max_turns"),
        ({"passages_per_query": 0}, "task.passages_per_query"),
        ({"retriever_timeout": 0}, "task.retriever_timeout"),
        ({"data": "x"}, "task.data: has no effect with task.source=sample"),
        ({"retriever": "http"}, "task.retriever_url: expected exactly with task.retriever=http, got None"),
        ({"retriever_url": "http://h/r"}, "task.retriever_url: expected exactly with task.retriever=http"),
        ({"retriever": "dense"}, "task.retriever_model: expected exactly with task.retriever=dense"),
        ({"retriever": "http", "retriever_url": "http://me:pw@h/r"}, "task.retriever_url: expected a URL without user"),
        ({"retriever": "http", "retriever_url": "http://h/r", "corpus": "x"}, "task.corpus: has no effect"),
    ],
)
def test_wrong_settings_name_their_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)


def test_the_sample_is_all_there() -> None:
    test, train = config().load(), config(split="train").load()
    assert (len(test.problems), len(train.problems), len(test.validation)) == (8, 12, 12)
    assert test.provenance.source == "sample"
    corpus = (Path(benchmark_files.__file__).parent / "search_qa" / "sample" / "passages.jsonl").read_text()
    answers = {**test.grader._references, **train.grader._references}  # type: ignore[attr-defined]
    assert len(answers) == 20
    assert all(any(answer in corpus for answer in accepted) for accepted in answers.values())


@pytest.mark.skipif(not TEST_DATA.is_dir(), reason="needs the test data; set EVORUN_TEST_DATA to their folder")
def test_the_data_at_hand_load() -> None:
    test, train = (config(source="auto", data=str(TEST_DATA), split=split).load() for split in ("test", "train"))
    assert (len(test.problems), len(train.problems)) == (64, 196)
    assert not set(ids(test)) & set(ids(train))

"""MATH: its records, the cluster and the rubric of each problem, and the problems at hand."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import load_task, simulated_run, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.base import Problem
from evorun.tasks.benchmark_files import Record
from evorun.tasks.math.clusters import TfIdf
from evorun.tasks.math.math import SUBJECTS, MathConfig

DATA = Path(os.environ.get("EVORUN_TEST_DATA", Path(__file__).resolve().parents[4] / "shared" / "data")) / "math"


def read_group(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    config = task_config("math", source="sample")
    assert isinstance(config, MathConfig)
    return config.read_group(Record(values, "f", 1, "f:1"), "test")


@pytest.mark.parametrize(
    ("record", "data"),
    [
        ({"subject": "Counting & Probability", "level": 3}, ("counting_and_probability", "level 3", None)),
        (
            {"type": "Intermediate Algebra", "level": "Level 5", "cluster_id": 2},
            ("intermediate_algebra", "level 5", "intermediate_algebra/2"),
        ),
        ({"subject": "number_theory"}, ("number_theory", None, None)),
        ({"type": "Algebra", "level": "Level ?"}, ("algebra", None, None)),
    ],
)
def test_a_record_has_a_subject_and_may_have_level_and_cluster(record: dict[str, Any], data: tuple[Any, ...]) -> None:
    assert read_group(record) == (data[0], dict(zip(("subject", "level", "cluster"), data, strict=True)))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "f:1: subject: expected one of algebra, counting_and_probability, .*, got None"),
        ({"subject": "Topology"}, "f:1: subject: expected one of .*, got 'Topology'"),
        ({"subject": "Algebra", "cluster_id": 0}, "f:1: cluster_id: expected an integer from 1, got 0"),
        ({"subject": "Algebra", "cluster_id": "a"}, "f:1: cluster_id: expected an integer from 1, got 'a'"),
    ],
)
def test_a_record_without_a_usable_subject_or_cluster_is_refused(record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_group(record)


def write(folder: Path, name: str, texts: Sequence[str], subject: str = "Algebra", **more: Any) -> None:
    records = [
        {"id": f"{name}/r{number}", "problem": text, "answer": "1", "subject": subject, **more}
        for number, text in enumerate(texts)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


WORDS = [*(f"Factor the polynomial in x, number {n}" for n in range(6)), *(f"Solve the equation {n}" for n in range(4))]


def keys(problems: Sequence[Problem], task: Any) -> dict[str, str]:
    return {problem.data["problem"]: task.rubric_key(problem) for problem in problems}


@pytest.mark.parametrize("folder", [".", "data"])
def test_the_hubs_own_files_are_read_from_a_folder(tmp_path: Path, folder: str) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / folder).mkdir(exist_ok=True)
    for split, texts in (("train", ["How many?", "How few?"]), ("test", ["How long?"])):
        rows = [
            {"problem": text, "level": "Level 3", "type": "Prealgebra", "solution": f"It is $\\boxed{{{len(text)}}}$."}
            for text in texts
        ]
        parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / folder / f"{split}-00000-of-00001.parquet")
    loaded = load_task("math", data=str(tmp_path), validation_problems=2)
    assert [one.data["problem"] for one in loaded.problems] == ["How long?"]
    assert loaded.answers[loaded.problems[0].id] == "9"
    assert {one.problem.data["problem"] for one in loaded.validation} == {"How many?", "How few?"}


def test_test_problems_fall_into_the_clusters_of_the_training_problems(tmp_path: Path) -> None:
    write(tmp_path, "math_train", WORDS)
    write(tmp_path, "math_test", ["Which equation is this?", "A polynomial of x", "Solve it"])
    loaded = load_task("math", data=str(tmp_path), clusters=2)
    assert loaded.task.rubric_keys() == tuple(f"{subject}/{n}" for subject in SUBJECTS for n in (1, 2))
    assert keys(loaded.problems, loaded.task) == {
        "Which equation is this?": "algebra/2",
        "A polynomial of x": "algebra/1",
        "Solve it": "algebra/2",
    }
    training = load_task("math", data=str(tmp_path), clusters=2, split="train")
    expected = {text: "algebra/1" if "polynomial" in text else "algebra/2" for text in WORDS}
    assert keys(training.problems, loaded.task) == expected


def test_clusters_depend_neither_on_files_nor_on_draws(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
        write(folder, "math_test", ["Solve it", "A polynomial"])
    write(whole, "math_train", WORDS)
    write(parts, "math_train_a", WORDS[7:])
    write(parts, "math_train_b", WORDS[:7])
    loaded = [load_task("math", data=str(folder), split="train") for folder in (whole, parts)]
    limited = load_task("math", data=str(whole), split="train", limit=3, draw_seed=5)
    first = keys(loaded[0].problems, loaded[0].task)
    assert first == keys(loaded[1].problems, loaded[1].task)
    assert keys(limited.problems, limited.task).items() <= first.items()


def test_published_clusters_are_taken_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, "math_train", WORDS, cluster_id=3)
    write(tmp_path, "math_test", ["Solve it"], "Geometry", cluster_id=2)
    loaded = load_task("math", data=str(tmp_path))
    assert keys(loaded.problems, loaded.task) == {"Solve it": "geometry/2"}
    with pytest.raises(DataError, match=r"task.clusters: the records .* name the cluster algebra/3; expected.* to 2"):
        load_task("math", data=str(tmp_path), clusters=2)


def test_without_training_problems_clusters_are_those_of_the_problems(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "math_test", WORDS)
    loaded = load_task("math", data=str(tmp_path / "math_test.jsonl"), clusters=2)
    assert Counter(keys(loaded.problems, loaded.task).values()) == {"algebra/1": 6, "algebra/2": 4}
    assert "clusters are fitted on the problems themselves" in caplog.text
    write(tmp_path, "math_train", ["What is a circle?"], "Geometry")
    loaded = load_task("math", data=str(tmp_path), clusters=2)
    assert set(keys(loaded.problems, loaded.task).values()) == {"algebra/1"}


def test_there_is_at_least_one_cluster_and_something_to_find_it_by() -> None:
    with pytest.raises(ConfigError, match=r"task\.clusters"):
        load_task("math", source="sample", clusters=0)
    with pytest.raises(ConfigError, match=r"task\.embeddings: expected tfidf or an encoder's hub id"):
        load_task("math", source="sample", embeddings="")


@pytest.mark.nightly
def test_the_problems_at_hand_have_21_rubrics_and_strata_by_subject() -> None:
    if not DATA.is_dir():
        pytest.skip("needs the test data; set EVORUN_TEST_DATA to their folder")
    training, test = (load_task("math", data=str(DATA), split=split) for split in ("train", "test"))
    assert [len(training.problems), len(test.problems)] == [325, 342]
    by_key = Counter(training.task.rubric_key(problem) for problem in training.problems)
    assert set(by_key) == set(training.task.rubric_keys())
    assert len(by_key) == 21
    for subject in SUBJECTS:
        sizes = [by_key[f"{subject}/{number}"] for number in (1, 2, 3)]
        assert sizes == sorted(sizes, reverse=True)
    assert {problem.stratum for problem in test.problems} == set(SUBJECTS)
    assert {problem.data["level"] for problem in test.problems} == {f"level {n}" for n in range(1, 6)}
    # Each test problem's cluster is the one of whose training problems it is nearest to the mean.
    for subject in SUBJECTS:
        texts, members = list[str](), defaultdict(list)
        for problem in training.problems:
            if problem.data["subject"] == subject:
                texts.append(problem.data["problem"])
                members[problem.data["cluster"]].append(problem.data["problem"])
        embed = TfIdf(sorted(texts))
        means = {number: embed(those).mean(axis=0) for number, those in members.items()}
        for problem in test.problems:
            if problem.data["subject"] == subject:
                vector = embed([problem.data["problem"]])[0]
                distances = {number: float(np.linalg.norm(vector - mean)) for number, mean in means.items()}
                assert distances[problem.data["cluster"]] <= min(distances.values()) + 1e-6


def test_rubrics_to_begin_with_are_the_same_for_all_clusters() -> None:
    task: Any = load_task("math", source="sample").task
    for name, maximum in (("initial", 5), ("expert", 20)):
        given = {task.starting_rubric(name, key) for key in task.rubric_keys()}
        assert [rubric.maximum for rubric in given] == [maximum]
    assert "mathematics competition" in task.task_description()
    with pytest.raises(ConfigError, match="expected one of expert, initial"):
        task.starting_rubric("oracle", "algebra/1")


def test_worked_solutions_are_known_to_the_driver_alone() -> None:
    if not DATA.is_dir():
        pytest.skip("needs the test data; set EVORUN_TEST_DATA to their folder")
    loaded = load_task("math", data=str(DATA))
    assert set(loaded.solutions) == {problem.id for problem in loaded.problems}
    for problem in loaded.problems:
        solution = loaded.solutions[problem.id]
        assert loaded.task.parse(problem, solution).answer == loaded.answers[problem.id]
        assert solution not in str(problem)
    assert load_task("math", source="sample").solutions == {}


FEW = ("method.refine_every=1", "method.eval_every=2", "task.clusters=2", "task.answer=integer")


def test_mpo_plans_beside_solutions_and_keeps_a_rubric_for_each_cluster(tmp_path: Path) -> None:
    """As appendix K.3 has it: a plan, then a score; or the final answer alone; each cluster refined for itself."""
    data = tmp_path / "data"
    data.mkdir()
    for name, count in (("math_train", 12), ("math_test", 2)):
        texts = [f"{'Solve the equation' if n % 2 else 'Factor the polynomial'} {name} {n}" for n in range(count)]
        write(data, name, texts, solution="As one sees at once, $\\boxed{1}$.")
    words = ("method=mpo", "task=math", f"task.data={data}", "method.steps=2", "method.problems_per_step=12")
    run = simulated_run(tmp_path / "run", *words, *FEW)
    assert run.json("manifest.json")["regime"] == "labels"
    shown = {role: [asked.messages[-1]["content"] for asked in run.asked if asked.hints.get("role") == role]
             for role in ("plan", "score")}  # fmt: skip
    assert shown["plan"]
    assert all("As one sees at once" in prompt for prompt in shown["plan"])
    assert not any("As one sees at once" in prompt for prompt in shown["score"])
    assert all("# Plan for scoring" in prompt for prompt in shown["score"])
    rollouts = run.records("rollouts")
    assert 0 < sum(one["correct"] is None for one in rollouts) < len(rollouts) == 24  # of both modes
    rubrics = [one for one in run.records("candidates") if one["kind"] == "rubric"]
    assert sum(one["operator"] == "root" for one in rubrics) == 2 * len(SUBJECTS)
    assert {one["id"].partition("#")[0] for one in rubrics if one["operator"] != "root"} == {"algebra/1", "algebra/2"}

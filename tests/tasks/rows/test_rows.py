"""A benchmark of one's own: its file, columns, splits and graders, and one line for whatever is wrong with them."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import NoTools, load_task, simulated_run, task_config
from evorun.errors import ConfigError, DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.rows.graders import GRADERS
from evorun.tasks.rows.rows import SAMPLE
from evorun.testing.tasks import check_task

OF_GRADER: dict[str, dict[str, Any]] = {"choice": {"options": ["options"]}, "rouge": {"answer": "solution"}}


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {"question": f"How much is {number} + 0?", "answer": str(number)} | changes


def load(path: Path, **settings: Any) -> LoadedTask:
    return load_task("rows", data=str(path), **settings)


def ids(problems: Sequence[Problem]) -> list[str]:
    return [problem.id for problem in problems]


def held_out(loaded: LoadedTask) -> list[str]:
    return ids([example.problem for example in loaded.validation])


async def correct(loaded: LoadedTask, text: str) -> bool | None:
    [problem] = loaded.problems
    return (await loaded.grade(problem, loaded.task.parse(problem, text), NoTools())).correct


@pytest.mark.parametrize(
    "grader", [pytest.param(g, marks=[pytest.mark.nightly] * (g in ("rouge", "math"))) for g in GRADERS]
)
def test_the_sample_passes_the_conformance_suite_under_every_grader(grader: str) -> None:
    config = task_config("rows", source="sample", grader=grader, **OF_GRADER.get(grader, {}))
    check_task(config)
    loaded = config.load()
    assert (len(loaded.problems), len(loaded.validation), len(config.load_training().problems)) == (8, 4, 12)
    assert loaded.provenance.source == "sample"


# --- files and columns ---


def test_the_three_formats_hold_the_same_rows(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"nr": f"r{n}", "q": f'Two lines,\nand "{n}"?', "gold": f"a, {n}", "group": "ab"[n % 2]} for n in range(6)]
    write(tmp_path / "a.jsonl", rows)
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    lines = [f'{one["nr"]},"Two lines,\nand ""{n}""?","{one["gold"]}",{one["group"]}' for n, one in enumerate(rows)]
    (tmp_path / "a.csv").write_bytes("\r\n".join(["\ufeffnr,q,gold,group", *lines, ""]).encode())
    columns = {"question": "q", "answer": "gold", "id": "nr", "stratum": "group"}
    first, *others = [load(tmp_path / f"a.{suffix}", **columns) for suffix in ("jsonl", "csv", "parquet")]
    assert set(ids(first.problems)) == {"r0", "r1", "r2", "r3", "r4", "r5"}
    assert {problem.stratum for problem in first.problems} == {"a", "b"}
    for other in others:
        assert other.problems == first.problems
        assert other.answers == first.answers
        assert other.provenance.digest == first.provenance.digest


def test_ids_are_made_where_there_is_no_column_of_them(tmp_path: Path) -> None:
    assert sorted(ids(load(write(tmp_path / "mine.jsonl", [row(1), row(2)])).problems)) == ["mine/1", "mine/2"]


@pytest.mark.parametrize(
    ("rows", "settings", "line"),
    [
        ([row(1), {"question": "?"}], {}, ":2: task.answer=answer: there is no such column; there are question"),
        ([row(1)], {"question": "q"}, ":1: task.question=q: there is no such column; there are question, answer"),
        ([row(1)], {"id": "nr"}, ":1: task.id=nr: there is no such column"),
        ([row(1, id=" ")], {"id": "id"}, ":1: task.id=id: expected a non-empty text without"),
        ([row(1, id="a|b")], {"id": "id"}, ":1: task.id=id: expected a non-empty text without"),
        ([row(1, id="x"), row(2, id="x")], {"id": "id"}, ":2: id 'x' is already used in "),
        ([row(1), "{not json"], {}, ":2: expected one JSON object per line"),
        ([row(1), [1]], {}, ":2: expected a JSON object, got list"),
        ([row(1, question="")], {}, ":1: task.question=question: expected a non-empty text, got ''"),
        ([row(1, answer=" ")], {}, ":1: task.answer=answer: expected a non-empty text or a number, got ' '"),
        ([row(1, answer=True)], {}, ":1: task.answer=answer: expected a non-empty text or a number, got True"),
        ([row(1, answer=[])], {}, ":1: task.answer=answer: expected a non-empty text or a number"),
        ([row(1), row(1, answer="2")], {}, ":2: the same question as "),
        ([row(1, answer="seven")], {"grader": "number"}, ":1: task.answer=answer: expected a number, got 'seven'"),
        ([row(1, answer="x" * 201)], {}, ":1: task.answer=answer: 'xxx"),
        ([row(1, answer="one\ntwo")], {}, ":1: task.answer=answer: 'one"),
        ([row(1, answer="x" * 501)], {"grader": "math"}, ":1: task.answer=answer: 'xxx"),
        ([row(1, answer=["a"])], {"grader": "rouge"}, ":1: task.answer=answer: expected a non-empty text or a number"),
        ([row(1, part="dev")], {"split_by": "part"}, ":1: task.split_by=part: expected one of test, validation, train"),
        ([row(1, o="A")], {"grader": "choice", "options": ["o"]}, ":1: task.options=o: expected 2 to 26 different"),
        ([row(1, o=["1", "1"])], {"grader": "choice", "options": ["o"]}, ":1: task.options=o: expected 2 to 26"),
        (
            [row(1, o=["3", "4"], answer="5")],
            {"grader": "choice", "options": ["o"]},
            ":1: task.answer=answer: expected the letter or the text of one of its 2 options, got '5'",
        ),
        ([], {}, "task.data: expected rows, mine.jsonl has none"),
    ],
)
def test_a_row_that_cannot_be_used_is_one_line_with_its_place(
    tmp_path: Path, rows: list[Any], settings: dict[str, Any], line: str
) -> None:
    with pytest.raises(DataError) as caught:
        load(write(tmp_path / "mine.jsonl", rows), **settings)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"question,answer\n1,2\n3\n", ":3: expected 2 fields as in the header, got 1"),
        (b'question,answer\n"a\nb",2\n3,4,5\n', ":4: expected 2 fields as in the header, got 3"),
        (b"question,question\n1,2\n", ":1: expected a header with distinct columns"),
        (b'question,answer\n1,2\n"open,4\n', ":3: cannot read as CSV: unexpected end of data"),
        (b"question,answer\n1,2\n\xff,4\n", ":3: expected text in UTF-8"),
    ],
)
def test_a_line_of_csv_that_cannot_be_read_has_its_number(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(tmp_path / "mine.csv")
    assert str(caught.value).removeprefix(str(tmp_path / "mine.csv")).startswith(line)


def test_long_texts_are_read_from_csv(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"question,answer\n{'x' * 200_000},1\n")
    assert len(load(tmp_path / "mine.csv").problems[0].data["question"]) == 200_000


def test_reading_a_short_csv_leaves_long_fields_readable(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("question,answer\nWhy?,1\n")
    load(tmp_path / "mine.csv")
    assert list(csv.reader(["x" * 10_000])) == [["x" * 10_000]]


def test_without_a_file_the_line_says_how_to_give_one() -> None:
    with pytest.raises(DataError, match=r"^the rows of task=rows were not found: give a file .* as task\.data=FILE; "):
        load_task("rows")


@pytest.mark.parametrize("name", ["nowhere.jsonl", ".", "mine.txt"])
def test_what_is_no_file_of_rows_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(DataError, match=r"^task\.data: expected a file in \.jsonl, \.csv, \.parquet, got '"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "x.csv", "grader": "bleu"}, "got 'bleu'; a plug-in's package must be installed (pip install FOLDER)"),
        ({"data": "x.csv", "grader": "choice"}, "task.options: expected the column"),
        ({"data": "x.csv", "options": ["o"]}, "task.options: expected null with task.grader=exact"),
        ({"data": "x.csv", "split": "dev"}, "task.split: expected one of test, train, validation"),
        ({"data": "x.csv", "train_share": 0.6, "validation_share": 0.4}, "task.train_share: expected less than 1"),
        ({"data": "x.csv", "train_share": 1.5}, "task.train_share: expected a number in [0, 1]"),
        ({"data": "x.csv", "split_by": "s", "train_share": 0.5}, "task.split_by: expected without shares"),
        ({"data": "x.csv", "tolerance": -1}, "task.tolerance"),
        ({"source": "hub"}, "task.hub_id: expected exactly with task.source=hub, got None"),
        ({"source": "sample", "data": "x.csv"}, "task.data: has no effect"),
    ],
)
def test_wrong_settings_name_their_key(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        task_config("rows", **settings)
    assert message in str(caught.value)


def test_rows_come_from_the_hub_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train.jsonl", [row(1), row(2)])
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **options: str(tmp_path))
    loaded = load_task("rows", source="hub", hub_id="someone/sums/train.jsonl")
    assert sorted(ids(loaded.problems)) == ["sums/1", "sums/2"]
    assert "hub data set someone/sums/train.jsonl" in loaded.provenance.description


# --- splits ---


def test_all_rows_are_tested_unless_there_are_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [row(n) for n in range(20)])
    loaded = load(path)
    assert len(loaded.problems) == 20
    assert loaded.validation == ()
    with pytest.raises(DataError, match=r"expected rows of the train split, mine\.jsonl has none; name the column"):
        task_config("rows", data=str(path)).load_training()


def test_shares_are_drawn_and_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [row(n) for n in range(20)])
    shares = {"train_share": 0.5, "validation_share": 0.2}
    loaded, training = load(path, **shares), task_config("rows", data=str(path), **shares, limit=2).load_training()
    parts = [ids(loaded.problems), held_out(loaded), ids(training.problems)]
    assert [len(part) for part in parts] == [6, 4, 10]
    assert len(set().union(*parts)) == 20
    assert set(ids(load(path, **shares, draw_seed=1).problems)) != set(parts[0])
    assert ids(load(path, **shares, limit=3).problems) == parts[0][:3]
    # Another share of one split leaves the beginning of the others as it is.
    assert ids(load(path).problems)[:6] == parts[0]
    assert ids(load(path, **shares, split="train").problems) == parts[2]
    assert held_out(load(path, **shares, split="train")) == parts[1]
    validated = load(path, **shares, split="validation")
    assert ids(validated.problems) == parts[1]
    assert validated.validation == ()


def test_a_column_says_which_split_a_row_is_in(tmp_path: Path) -> None:
    rows = [row(n, part=("Train", "test", "validation")[n % 3]) for n in range(9)]
    path = write(tmp_path / "mine.jsonl", rows)
    loaded, training = load(path, split_by="part"), task_config("rows", data=str(path), split_by="part").load_training()
    assert sorted(ids(loaded.problems)) == ["mine/2", "mine/5", "mine/8"]
    assert sorted(ids(training.problems)) == ["mine/1", "mine/4", "mine/7"]
    assert sorted(held_out(loaded)) == ["mine/3", "mine/6", "mine/9"]
    with pytest.raises(ConfigError, match=r"^task\.split: expected test for a run that trains"):
        task_config("rows", data=str(path), split_by="part", split="train").load_training()


def test_a_repeated_row_is_left_out_and_told_of(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "mine.jsonl", [row(1), row(2), row(1)]))
    assert sorted(ids(loaded.problems)) == ["mine/1", "mine/2"]
    assert "2 of 2 rows of mine.jsonl (test split, 1 repeated ones left out), graded by exact" in (
        loaded.provenance.description
    )


# --- graders ---


@pytest.mark.parametrize(
    ("grader", "answer", "reply", "right"),
    [
        ("exact", "New  York", "It is large.\nAnswer: New York", True),
        ("exact", "New York", "Answer: new york", False),
        ("exact", ["NYC", "New York"], "Answer: NYC", True),
        ("exact", "New York", "I do not know it.", False),
        ("number", "0.5", "Answer: 1/2", True),
        ("number", "1200", "Answer: 1,200 jars", True),
        ("number", 1.5e-3, "Answer: 0.0015", True),
        ("number", "3.0", "Answer: 3.00001", False),
        ("number", ["2", "3"], "Answer: 3", True),
        ("number", "3", "Answer: three of them", False),
        ("number", "3", "Answer: 1e999999999", False),
        ("math", "\\frac{1}{2}", "So it is \\boxed{0.5}.", True),
        ("math", "\\sqrt{12}", "So it is \\boxed{2\\sqrt{3}}.", True),
        ("math", "2x", "So it is \\boxed{3x}.", False),
    ],
)
async def test_answers_are_compared_as_the_grader_says(
    tmp_path: Path, grader: str, answer: Any, reply: str, right: bool
) -> None:
    loaded = load(write(tmp_path / "mine.jsonl", [row(1, question="Which one?", answer=answer)]), grader=grader)
    assert await correct(loaded, reply) is right


def test_the_tolerance_is_relative(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [row(1, answer="1000")])
    [problem] = load(path).problems
    for tolerance, expected in ((0.001, True), (0.0009, False), (0.0, False)):
        task: Any = load(path, grader="number", tolerance=tolerance).task
        assert task.score(problem, Response(text="", answer="1001"), "1000").correct is expected
        assert task.score(problem, Response(text="", answer="1,000.0"), "1000").correct


@pytest.mark.parametrize("answer", ["B", "b", "4"])
@pytest.mark.parametrize("columns", [["all"], ["one", "two", "three"]])
async def test_a_choice_is_given_as_a_letter_or_a_text(tmp_path: Path, answer: str, columns: list[str]) -> None:
    options = {"all": ["3", "4", "5"], "one": "3", "two": "4", "three": 5}
    path = write(tmp_path / "mine.jsonl", [row(4, answer=answer, **options)])
    loaded = load(path, grader="choice", options=columns)
    assert loaded.task.generation_prompt(loaded.problems[0]).messages[-1]["content"].count("B. 4") == 1  # type: ignore[attr-defined]
    assert await correct(loaded, "Answer: B")
    assert await correct(loaded, "The answer is 4.")
    assert not await correct(loaded, "Answer: C")
    assert not await correct(loaded, "Answer: D")


def test_options_in_csv_are_a_json_list(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text('question,answer,o\nWhich?,x,"[""x"", ""y""]"\n')
    loaded = load(tmp_path / "mine.csv", grader="choice", options=["o"])
    assert loaded.problems[0].data["options"] == ("x", "y")
    assert loaded.answers == {"mine/1": "A"}


async def test_texts_are_measured_by_rouge(tmp_path: Path) -> None:
    pytest.importorskip("rouge_score")
    loaded = load(write(tmp_path / "mine.jsonl", [row(1, answer="the cat sat on the mat")]), grader="rouge")
    [problem] = loaded.problems
    grade = await loaded.grade(problem, loaded.task.parse(problem, "the cat sat"), NoTools())
    assert grade.correct is None
    assert math.isclose(grade.scores["rouge1"], 2 * 3 / (3 + 6))  # precision 3/3, recall 3/6


async def test_a_number_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "mine.jsonl", [row(1, answer="0.0015")]), grader="number")
    [problem] = loaded.problems
    task: Any = loaded.task
    replies = ("Answer: 0.0015", "Answer: 1.5e-3", "Answer: 1.5 x 10^-3 grams")
    for reply in replies:
        assert await correct(loaded, reply)
    assert len({task.signature(problem, task.parse(problem, reply)) for reply in replies}) == 1


# --- runs ---


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("duel_evolve", {"generations": 1, "initial_candidates": 3, "children": 2, "parents": 2}),
        ("few_shot", {"shots": 2}),
        ("espl", {"steps": 1, "problems_per_step": 2, "group": 2}),
        ("grpo", {"steps": 1, "problems_per_step": 2, "group": 2}),
    ],
)
def test_methods_run_on_rows(tmp_path: Path, method: str, settings: dict[str, int]) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(SAMPLE.read_bytes())
    keys = [f"method.{key}={value}" for key, value in settings.items()]
    task = ["task=rows", f"task.data={path}", "task.split_by=split", "task.grader=number", "task.limit=2"]
    run = simulated_run(tmp_path / "run", f"method={method}", *task, *keys)
    assert run.json("results.json")["metrics"]["accuracy"]["n"] == 2

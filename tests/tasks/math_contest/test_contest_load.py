"""Loading: which problems train and which test, where they come from, and what is said about bad files."""

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contest_fixture import REPOSITORY, TEST_DATA, boxed, split

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.base import LoadedTask
from evorun.tasks.math_contest import problems

CONTESTS = ["aime", "beyond_aime", "dapo_aime25", "hmmt", "math", "math500"]
NO_TOOLS: Any = None


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)


def write(path: Path, records: Sequence[Any]) -> Path:
    path.write_bytes(b"".join((r if isinstance(r, bytes) else msgspec.json.encode(r)) + b"\n" for r in records))
    return path


def record(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "problem": f"How much is {number} + 0?", "answer": number} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    years = [record(n, year=2019 + n % 8, contest="AIME") for n in range(160)]  # 20 of each, 2019 to 2026
    write(tmp_path / "aime_2019_2026.jsonl", years)
    write(tmp_path / "aime_graded_outputs.jsonl", [{"expected": "1"}])
    write(tmp_path / "dapo.jsonl", [record(n, id=f"d{n}", problem=f"Is it {n}?") for n in range(300)])
    return tmp_path


def ids(loaded: LoadedTask) -> list[str]:
    return [problem.id for problem in loaded.problems]


def numbers(loaded: LoadedTask) -> set[int]:
    return {int(one[1:]) for one in ids(loaded)}


# --- splits ---


def test_a_split_takes_its_years(folder: Path) -> None:
    data = str(folder)
    assert numbers(load_task("aime", data=data)) == {n for n in range(160) if 2019 + n % 8 == 2025}
    train = load_task("aime", data=data, split="train")
    assert numbers(train) == {n for n in range(160) if 2019 + n % 8 in (2022, 2023, 2024)}
    assert {problem.stratum for problem in train.problems} == {"AIME 2022", "AIME 2023", "AIME 2024"}


def test_demonstrations_come_from_the_train_split_and_are_no_problems_of_the_run(folder: Path) -> None:
    loaded = load_task("aime", data=str(folder))
    shown = [shot.problem.id for shot in loaded.validation]
    assert len(shown) == 12
    assert all(2019 + int(one[1:]) % 8 in (2022, 2023, 2024) for one in shown)
    drawn = load_task("dapo_aime25", data=str(folder), split="train")
    assert len(drawn.problems) == 100
    assert len(drawn.validation) == 12
    assert not {shot.problem.id for shot in drawn.validation} & set(ids(drawn))
    assert load_task("aime", data=str(folder), split="train").validation == ()
    assert load_task("aime", data=str(folder), validation_problems=0).validation == ()


def test_the_draw_follows_its_own_seed(folder: Path) -> None:
    def drawn(draw_seed: int) -> list[str]:
        return ids(load_task("dapo_aime25", data=str(folder), split="train", draw_seed=draw_seed))

    assert drawn(0) == drawn(0)
    assert set(drawn(0)) != set(drawn(1))


def test_a_limit_takes_a_prefix_and_leaves_demonstrations_alone(folder: Path) -> None:
    full, limited = (load_task("aime", data=str(folder), limit=limit) for limit in (None, 5))
    assert ids(limited) == ids(full)[:5]
    assert limited.validation == full.validation


def test_a_draw_from_too_few_is_an_error(folder: Path) -> None:
    write(folder / "dapo.jsonl", [record(n) for n in range(99)])
    with pytest.raises(DataError, match="train split holds 99 problems; expected at least 100"):
        load_task("dapo_aime25", data=str(folder), split="train")
    assert len(load_task("dapo_aime25", data=str(folder)).validation) == 12


def test_records_without_the_field_that_selects_are_an_error(folder: Path) -> None:
    write(folder / "aime_1.jsonl", [record(900)])
    with pytest.raises(DataError, match=r"field year in every record, 'r900' has none; task.test.years=null"):
        load_task("aime", data=str(folder))


def test_a_single_file_holds_the_problems_to_work_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "mine.jsonl", [{"problem": f"Problem {n}", "answer": str(n)} for n in range(4)])
    with caplog.at_level(logging.WARNING):
        loaded = load_task("beyond_aime", data=str(file))
    assert sorted(ids(loaded)) == ["mine/1", "mine/2", "mine/3", "mine/4"]
    assert loaded.validation == ()
    assert "no validation split" in caplog.text


def test_problems_carry_no_answer(folder: Path) -> None:
    assert all(set(problem.data) == {"problem"} for problem in load_task("aime", data=str(folder)).problems)


# --- provenance ---


def test_the_full_set_is_the_benchmark_and_a_part_is_not(folder: Path) -> None:
    part = load_task("aime", data=str(folder)).provenance
    assert part.source == "stand_in"
    assert "20 problems for AIME 2025, which has 30" in part.description
    write(folder / "aime_2.jsonl", [record(n, year=2025) for n in range(500, 510)])
    full = load_task("aime", data=str(folder)).provenance
    assert (full.source, full.description[:28]) == ("benchmark", "AIME 2025, all 30 problems (")
    assert full.digest != part.digest


# --- the hub ---


def test_a_hub_data_set_is_read_in_both_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    asked = []

    def snapshot(hub_id: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        asked.append((hub_id, repo_type, allow_patterns))
        root = tmp_path / hub_id.replace("/", "_")
        (root / "data").mkdir(parents=True, exist_ok=True)
        rows = [{"problem_idx": n, "problem": f"{hub_id} {n}", "answer": f"\\sqrt{{{n}}}"} for n in range(3)]
        parquet.write_table(arrow.Table.from_pylist(rows), root / "data" / "train-00000-of-00001.parquet")
        write(root / "test.jsonl", [{"unique_id": "test/1.json", "problem": "P", "answer": "1", "level": 5}])
        return str(root)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    hmmt = task_config("hmmt", source="hub", split="train", validation_problems=0)
    hmmt.train.hub = [f"{name}/data/*.parquet" for name in hmmt.train.hub]
    loaded = hmmt.load()
    assert len(loaded.problems) == 9
    assert "hmmt_feb_2023/1" in ids(loaded)
    math = load_task("math500", source="hub", validation_problems=0)
    assert [(problem.id, problem.stratum) for problem in math.problems] == [("test/1.json", "level 5")]
    assert asked[-1] == ("HuggingFaceH4/MATH-500", "dataset", ["test.jsonl"])


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(*arguments: Any, **options: Any) -> str:
        raise OSError("no network\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(DataError, match=r"cannot fetch the data set 'math-ai/aime25': no network$"):
        load_task("aime", source="hub")


# --- records ---


def test_a_bad_record_names_file_and_line(tmp_path: Path) -> None:
    for given, message in [
        (b"{", "one JSON object per line"),
        (b"[1]", "expected a JSON object, got list"),
        ({"answer": 1}, "'problem' is missing"),
        ({"problem": " ", "answer": 1}, "problem: expected a non-empty string"),
        ({"problem": "P"}, "expected the field answer"),
        ({"problem": "P", "solution": "It is five."}, "expected the field answer"),
        ({"problem": "P", "answer": 1000}, "integer from 0 to 999, got 1000"),
        ({"problem": "P", "answer": -1}, "integer from 0 to 999, got -1"),
        ({"problem": "P", "answer": "1/2"}, "integer from 0 to 999"),
        ({"problem": "P", "answer": True}, "answer: expected a non-empty string or an integer"),
        ({"problem": "P", "answer": 1.5}, "answer: expected a non-empty string or an integer"),
        ({"problem": "P", "answer": 1, "accepted_answers": 2}, "accepted_answers: expected a list"),
        ({"problem": "P", "answer": 1, "id": True}, "id: expected"),
        ({"problem": "P", "answer": 1, "year": "soon"}, "year: expected an integer"),
        ({"problem": "P", "answer": 1, "contest": 7}, "contest: expected a string"),
        (record(1), "id 'r1' is already used in"),
    ]:
        file = write(tmp_path / "mine.jsonl", [record(1), given])
        with pytest.raises(DataError, match=r"mine\.jsonl:2: ") as caught:
            load_task("beyond_aime", data=str(file), largest_answer=999)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_answers_are_found_where_data_sets_put_them(tmp_path: Path) -> None:
    records = [
        {"prompt": "A", "solution": "34"},
        {"question": "B", "solution": "So $\\boxed{x=7}$."},
        {"problem": "C", "answer": "007"},
        {"problem": "D", "answer": 8, "accepted_answers": [8, 9]},
    ]
    loaded = load_task("beyond_aime", data=str(write(tmp_path / "mine.jsonl", records)))
    accepted = {problem.data["problem"]: loaded.grader._references[problem.id] for problem in loaded.problems}  # type: ignore[attr-defined]
    assert accepted == {"A": ("34",), "B": ("7",), "C": ("7",), "D": ("8", "9")}


def test_repeated_problems_are_kept_once_and_disputed_ones_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same, disputed = record(1) | {"id": "again"}, record(2) | {"id": "other", "answer": 5}
    file = write(tmp_path / "mine.jsonl", [record(1), record(2), same, disputed, record(3)])
    with caplog.at_level(logging.WARNING):
        loaded = load_task("beyond_aime", data=str(file), validation_problems=0)
    assert sorted(ids(loaded)) == ["r1", "r3"]
    assert caplog.text.count("left out") == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "task.split: expected one of test, train"),
        ({"source": "web"}, "task.source"),
        ({"answer": "letter"}, "task.answer"),
        ({"limit": 0}, "task.limit"),
        ({"test": split(draw=0)}, "task.test.draw"),
        ({"answer": "expression", "largest_answer": 9}, "task.largest_answer"),
        ({"source": "sample", "data": "x"}, "task.data: has no effect"),
    ],
)
def test_wrong_settings_name_their_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_config("beyond_aime", **options)


def test_nothing_found_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"task.data=FOLDER or \$EVORUN_DATA/math.*task.source=hub.*task.source=sample"):
        load_task("aime")
    with pytest.raises(DataError, match=r"expected aime_\*\[0-9\].jsonl in"):
        load_task("aime", data=str(tmp_path))
    (tmp_path / "math").mkdir()
    write(tmp_path / "math" / "aime_1.jsonl", [record(1, year=2025)])
    monkeypatch.setenv("EVORUN_DATA", str(tmp_path))
    assert ids(load_task("aime")) == ["r1"]


# --- the sample set, and the data at hand ---


@pytest.mark.parametrize("name", CONTESTS)
async def test_every_task_has_a_sample_whose_answers_pass(name: str) -> None:
    for of in ("train", "test"):
        loaded = load_task(name, source="sample", split=of)
        assert len(loaded.problems) == (12 if loaded.task.integers else 18)  # type: ignore[attr-defined]
        assert loaded.provenance.source == "sample"
        for problem in loaded.problems:
            gold = loaded.grader._references[problem.id][0]  # type: ignore[attr-defined]
            response = loaded.task.parse(problem, boxed(gold))
            assert (await loaded.grader.grade(problem, response, NO_TOOLS)).correct
            assert gold not in problem.data["problem"].split()


@pytest.mark.parametrize("name", CONTESTS)
def test_every_task_shows_enough_demonstrations(name: str) -> None:
    assert len(load_task(name, source="sample").validation) == 12


@pytest.mark.nightly
def test_the_sample_is_what_its_script_writes_and_confirms(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts" / "make_math_contest_sample.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in problems.SAMPLE.iterdir()}


@pytest.mark.parametrize(
    ("name", "options", "test_size", "train_size"),
    [
        ("aime", {}, 19, 67),
        ("hmmt", {}, 23, 48),
        pytest.param("math", {}, 342, 325, marks=pytest.mark.nightly),
        ("math500", {}, 342, 325),
        ("dapo_aime25", {"train": split(files=["dapo*.jsonl"])}, 19, 8),
    ],
)
def test_the_data_at_hand_load(name: str, options: dict[str, Any], test_size: int, train_size: int) -> None:
    if not TEST_DATA.is_dir():
        pytest.skip("needs the test data; set EVORUN_TEST_DATA to their folder")
    splits = [load_task(name, data=str(TEST_DATA), split=of, **options) for of in ("test", "train")]
    assert [len(loaded.problems) for loaded in splits] == [test_size, train_size]
    assert not set(ids(splits[0])) & set(ids(splits[1]))

"""Loading: where the files come from, how problems are drawn, and what is said about bad records."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import LoadedTask
from evorun.tasks.mathbench import mathbench

STAGES = ("middle", "high", "college")
NO_TOOLS: Any = None  # letters are graded without running anything
REPOSITORY = Path(__file__).resolve().parents[2]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)


def record(number: int, **changes: Any) -> dict[str, Any]:
    options = [str(number + offset) for offset in range(4)]
    return {"question": f"What is {number} + 0?", "options": options, "answer": "A"} | changes


def write(root: Path, stage: str, records: list[Any]) -> Path:
    path = root / stage / "single_choice_en.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [r if isinstance(r, bytes) else msgspec.json.encode(r) for r in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for offset, stage in enumerate(STAGES):
        write(tmp_path, stage, [record(1000 * offset + n) for n in range(80)])
    return tmp_path


def load(folder: Path, **changes: Any) -> LoadedTask:
    return load_task("mathbench", data=str(folder), **changes)


def ids(loaded: LoadedTask) -> list[str]:
    return [problem.id for problem in loaded.problems]


# --- the draw ---


def test_the_draw_is_balanced_and_disjoint_from_validation(folder: Path) -> None:
    loaded = load(folder)
    assert Counter(problem.stratum for problem in loaded.problems) == dict.fromkeys(STAGES, 50)
    assert Counter(shot.problem.stratum for shot in loaded.validation) == dict.fromkeys(STAGES, 6)
    every = [*ids(loaded), *(shot.problem.id for shot in loaded.validation)]
    assert len(set(every)) == len(every) == 168


@pytest.mark.sample(3)
@pytest.mark.parametrize(("smallest", "held_out"), [(100, 6), (120, 20), (150, 50), (160, 50)])
def test_the_more_a_stage_has_the_more_is_held_out(folder: Path, smallest: int, held_out: int) -> None:
    before = ids(load(folder, validation_per_stratum=6))
    for number, stage in enumerate(STAGES):
        write(folder, stage, [record(1000 * number + n) for n in range(smallest + 30 * (stage == "high"))])
    loaded = load(folder)
    assert Counter(shot.problem.stratum for shot in loaded.validation) == dict.fromkeys(STAGES, held_out)
    assert ids(loaded) == ids(load(folder, validation_per_stratum=0))
    assert len(loaded.problems) == len(before) == 150


def test_the_draw_follows_the_seed(folder: Path) -> None:
    assert ids(load(folder, draw_seed=3)) == ids(load(folder, draw_seed=3))
    assert load(folder, draw_seed=3).provenance == load(folder, draw_seed=3).provenance
    assert set(ids(load(folder, draw_seed=3))) != set(ids(load(folder, draw_seed=4)))


@pytest.mark.parametrize("limit", [1, 2, 3, 12, 30, 149])
def test_a_limit_takes_a_balanced_prefix(folder: Path, limit: int) -> None:
    limited, full = load(folder, limit=limit), load(folder)
    assert ids(limited) == ids(full)[:limit]
    counts = Counter(problem.stratum for problem in limited.problems)
    assert max(counts.values()) - min(counts.get(stage, 0) for stage in STAGES) <= 1
    assert [shot.problem.id for shot in limited.validation] == [shot.problem.id for shot in full.validation]


def test_a_smaller_stratum_size_takes_a_subset(folder: Path) -> None:
    assert set(ids(load(folder, per_stratum=10))) < set(ids(load(folder)))


def test_one_stage_is_drawn_alike_whatever_the_others_are(folder: Path) -> None:
    alone = ids(load(folder, strata=["high"]))
    assert alone == [p.id for p in load(folder).problems if p.stratum == "high"]


def test_a_stage_that_is_too_small_is_an_error(folder: Path) -> None:
    write(folder, "high", [record(1000 + n) for n in range(55)])
    with pytest.raises(DataError, match=r"'high' holds 55 problems; expected at least 50 .* and 6 held out"):
        load(folder)
    assert len(load(folder, validation_per_stratum=5).problems) == 150


def test_problems_carry_no_answer(folder: Path) -> None:
    assert all(set(problem.data) == {"question", "options"} for problem in load(folder).problems)


async def test_gold_answers_pass_the_grader_and_others_do_not() -> None:
    loaded = load_task("mathbench", source="sample")
    gold = {r["id"]: r["answer"] for stage in STAGES for r in sample_records(stage)}
    assert len(loaded.problems) == 126
    for problem in [*loaded.problems, *(shot.problem for shot in loaded.validation)]:
        for letter in ("A", "B", "C", "D", None):
            grade = await loaded.grader.grade(problem, Response(text="", answer=letter), NO_TOOLS)
            assert grade.correct == (letter == gold[problem.id])
    assert all(shot.answer == gold[shot.problem.id] for shot in loaded.validation)


def sample_records(stage: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in (mathbench.SAMPLE / stage / mathbench.FILE).read_bytes().splitlines()]


async def test_the_grader_refuses_a_problem_that_it_does_not_know(folder: Path) -> None:
    stranger = msgspec.structs.replace(load(folder).problems[0], id="other")
    with pytest.raises(DataError, match="'other'"):
        await load(folder).grader.grade(stranger, Response(text="", answer="A"), NO_TOOLS)


# --- where the files come from ---


def test_the_archive_may_lie_inside_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outer = tmp_path_factory.mktemp("outer")
    folder.rename(outer / "mathbench_v1")
    assert len(load(outer).problems) == 150


def test_evorun_data_is_looked_in(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    outer = tmp_path_factory.mktemp("data")
    folder.rename(outer / "mathbench")
    monkeypatch.setenv("EVORUN_DATA", str(outer))
    assert load_task("mathbench").provenance.source == "stand_in"


def test_nothing_found_says_where_to_get_it() -> None:
    with pytest.raises(
        DataError, match=r"github.com/open-compass/MathBench.*task.data.*EVORUN_DATA.*task.source=sample"
    ):
        load_task("mathbench")


def test_a_hub_data_set_is_read_from_its_snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **options: asked.append((name, options)) or str(folder)
    )
    loaded = load_task("mathbench", hub_id="someone/mathbench")
    assert ids(loaded) == ids(load(folder))
    assert loaded.provenance.description.endswith("(hub data set someone/mathbench)")
    assert asked == [("someone/mathbench", {"repo_type": "dataset", "allow_patterns": ["*single_choice_*.jsonl"]})]


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, **options: Any) -> str:
        raise FileNotFoundError("no connection\nand a long story")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(DataError, match=r"'someone/mathbench': no connection$"):
        load_task("mathbench", source="hub", hub_id="someone/mathbench")


def test_missing_places_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"expected a folder .*/nowhere"):
        load(folder / "nowhere")
    (folder / "mathbench_v1.zip").touch()
    with pytest.raises(DataError, match="unpack the archive first"):
        load(folder / "mathbench_v1.zip")
    (folder / "high" / mathbench.FILE).unlink()
    with pytest.raises(DataError, match=r"high/single_choice_en.jsonl"):
        load(folder)


# --- what the files are said to be ---


def test_files_are_the_benchmarks_own_only_with_the_archives_other_parts(folder: Path) -> None:
    assert load(folder).provenance.source == "stand_in"
    for stage in STAGES:
        (folder / stage / "single_choice_cn.jsonl").touch()
        (folder / f"{stage}_knowledge").mkdir()
    assert load(folder).provenance.source == "benchmark"
    assert load(folder, source="stand_in").provenance.source == "stand_in"


def test_the_user_may_say_what_the_files_are(folder: Path) -> None:
    assert load(folder, source="benchmark").provenance.source == "benchmark"


def test_the_sample_says_that_it_is_the_sample() -> None:
    provenance = load_task("mathbench", source="sample").provenance
    assert provenance.source == "sample"
    assert "not MathBench" in provenance.description


def test_the_digest_depends_on_questions_and_answers(folder: Path) -> None:
    before = load(folder).provenance.digest
    write(folder, "college", [record(2000 + n, answer="B") for n in range(80)])
    assert load(folder).provenance.digest != before


# --- records ---


def one_stage(root: Path, records: list[Any], **changes: Any) -> LoadedTask:
    write(root, "middle", records)
    return load(root, strata=["middle"], per_stratum=len(records), validation_per_stratum=0, **changes)


def test_a_bad_record_is_named_by_file_and_line(tmp_path: Path) -> None:
    for bad, reason in [
        (b"{not json", "expected one JSON object per line"),
        (b"\xff\xfe", "expected one JSON object per line"),
        (b"[" * 5000, "expected one JSON object per line"),
        ([1, 2], "expected a JSON object, got list"),
        ({"options": ["1"] * 4, "answer": "A"}, "'question' is missing"),
        ({"question": "?", "answer": "A"}, "'options' is missing"),
        ({"question": "?", "options": list("abcd")}, "'answer' is missing"),
        (record(1, question=" "), "question: expected a non-empty string"),
        (record(1, question=7), "question: expected a non-empty string"),
        (record(1, options=["1", "2", "3"]), "options: expected a list of 4 strings"),
        (record(1, options=["1", "2", "3", None]), "options: expected a list of 4 strings"),
        (record(1, options=["1", "2", "3", ""]), "options: expected a list of 4 strings"),
        (record(1, options="ABCD"), "options: expected a list of 4 strings"),
        (record(1, answer="E"), "answer: expected one of A, B, C, D, got 'E'"),
        (record(1, answer="AB"), "answer: expected one of A, B, C, D"),
        (record(1, answer=0), "answer: expected one of A, B, C, D"),
        (record(1, id=""), "id: expected"),
        (record(1, id=[1]), "id: expected"),
        (record(0, answer="B"), "the same question as .*:1, with another answer"),
    ]:
        with pytest.raises(DataError, match=rf"middle/single_choice_en\.jsonl:3: .*{reason}") as caught:
            one_stage(tmp_path, [record(0), b"", bad])
        assert "\n" not in str(caught.value)


def test_an_id_used_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"jsonl:2: id 'x' is already used in .*jsonl:1"):
        one_stage(tmp_path, [record(0, id="x"), record(1, id="x")])


def test_a_repeated_question_is_kept_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "middle", [record(0), record(0), record(1)])
    loaded = load(tmp_path, strata=["middle"], per_stratum=2, validation_per_stratum=0)
    assert sorted(ids(loaded)) == ["middle/1", "middle/3"]
    assert "jsonl:2: left out" in caplog.text


def test_a_question_of_two_stages_is_drawn_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Or it could be a demonstration of one stage and a problem of another."""
    write(tmp_path, "middle", [record(n) for n in range(6)])
    write(tmp_path, "high", [record(n) for n in range(3, 9)])
    drawn = load(tmp_path, strata=["middle", "high"], per_stratum=2, validation_per_stratum=1)
    assert len(drawn.problems) == 4
    questions = {p.data["question"] for p in (*drawn.problems, *(shot.problem for shot in drawn.validation))}
    assert len(questions) == 6
    assert set(ids(drawn)) | {shot.problem.id for shot in drawn.validation} >= {"high/4", "high/5", "high/6"}
    assert caplog.text.count("left out, the same question as") == 3
    assert "high/single_choice_en.jsonl:1: left out" in caplog.text
    again = load(tmp_path, strata=["middle", "high"], per_stratum=2, validation_per_stratum=1)
    assert ids(again) == ids(drawn)
    write(tmp_path, "high", [record(0, answer="B"), *(record(n) for n in range(9, 20))])
    with pytest.raises(DataError, match=r"high/.*:1: the same question as .*middle/.*:1, with another answer"):
        load(tmp_path, strata=["middle", "high"], per_stratum=2, validation_per_stratum=1)


@pytest.mark.parametrize("answer", ["b", " B", "B.", "(B)", "B\n"])
async def test_answer_letters_are_read_with_tolerance(tmp_path: Path, answer: str) -> None:
    loaded = one_stage(tmp_path, [record(0, answer=answer)])
    assert (await loaded.grader.grade(loaded.problems[0], Response(text="", answer="B"), NO_TOOLS)).correct


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["A. 1", "B. 2", "C. 3", "D. 4"], ("1", "2", "3", "4")),
        (["(A) 1", "(B) 2", "(C) 3", "(D) 4"], ("1", "2", "3", "4")),
        ([1, 2.5, "3", " 4 "], ("1", "2.5", "3", "4")),
        (["A. 1", "B. 2", "C. 3", "4"], ("A. 1", "B. 2", "C. 3", "4")),
        (["A", "B", "C", "D"], ("A", "B", "C", "D")),
        (["B. 1", "A. 2", "C. 3", "D. 4"], ("B. 1", "A. 2", "C. 3", "D. 4")),
    ],
)
def test_options_lose_their_own_letters_when_all_carry_them(tmp_path: Path, given: list[Any], read: Any) -> None:
    assert one_stage(tmp_path, [record(0, options=given)]).problems[0].data["options"] == read


def test_ids_are_the_records_own_or_the_line(tmp_path: Path) -> None:
    loaded = one_stage(tmp_path, [record(0, id="mmlu/7"), record(1, id=7), record(2)])
    assert sorted(ids(loaded)) == ["middle/3", "middle/7", "mmlu/7"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_errors(tmp_path: Path) -> None:
    path = write(tmp_path, "middle", [record(0), record(1)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(load(tmp_path, strata=["middle"], per_stratum=2, validation_per_stratum=0).problems) == 2


# --- configuration ---


def test_bad_values_are_refused_by_key() -> None:
    for changes, key in [
        ({"source": "web"}, "task.source"),
        ({"per_stratum": 0}, "task.per_stratum"),
        ({"validation_per_stratum": -1}, "task.validation_per_stratum"),
        ({"limit": 0}, "task.limit"),
        ({"reasoning_max_chars": 0}, "task.reasoning_max_chars"),
        ({"shown_reasoning_chars": 0}, "task.shown_reasoning_chars"),
        ({"strata": ["primary"]}, "task.strata"),
        ({"strata": []}, "task.strata"),
        ({"strata": ["high", "high"]}, "task.strata"),
        ({"source": "sample", "data": "x"}, "task.data"),
        ({"source": "hub"}, "task.hub_id"),
    ]:
        with pytest.raises(ConfigError, match=key):
            task_config("mathbench", **changes)


# --- real questions in the benchmark's layout ---


def have(name: str) -> Callable[..., Any]:
    return pytest.mark.skipif(not (TEST_DATA / name).is_dir(), reason=f"{name} is not there (EVORUN_TEST_DATA)")


@have("mathbench_standin")
def test_real_questions_in_the_layout_are_read() -> None:
    loaded = load(TEST_DATA / "mathbench_standin")
    assert Counter(problem.stratum for problem in loaded.problems) == dict.fromkeys(STAGES, 50)
    assert loaded.provenance.source == "stand_in"
    assert "mathbench_standin" in loaded.provenance.description
    read = mathbench.read_stages(TEST_DATA / "mathbench_standin", STAGES)
    assert {stage: len(questions) for stage, questions in read.items()} == {"middle": 282, "high": 331, "college": 142}


@have("mathbench_standin")
def test_every_way_of_naming_a_real_option_is_read_as_that_option() -> None:
    task = load(TEST_DATA / "mathbench_standin", limit=1).task
    questions = [q for stage in mathbench.read_stages(TEST_DATA / "mathbench_standin", STAGES).values() for q in stage]
    for question in questions[::20]:
        options = question.problem.data["options"]
        for letter, option in zip("ABCD", options, strict=True):
            for way in (letter, f"{letter}.", f"({letter})", f"{letter}. {option}", f"{letter}) {option}"):
                text = msgspec.json.encode({"reasoning": "r", "solution": way}).decode()
                assert task.parse(question.problem, text).answer == letter, (question.problem.id, way)
            text = msgspec.json.encode({"reasoning": "r", "solution": option}).decode()
            bare_letter = len(option.strip("().")) == 1 and option.strip("().").isalpha()
            assert task.parse(question.problem, text).answer == letter or bare_letter, (question.problem.id, option)

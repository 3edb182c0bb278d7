"""Loading: both layouts, the release's encoding, the draw and its filters, and what is said about bad records."""

import base64
import contextlib
import io
import json
import os
import pickle
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.base import LoadedTask
from evorun.tasks.livecodebench import problems
from evorun.tasks.livecodebench.records import decode_private_tests

STRATA = ("easy", "medium", "hard")
REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "code"
HIDDEN = [{"input": "40\n", "output": "41\n"}, {"input": "-1\n", "output": "0\n"}]


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_DATA", raising=False)


def encoded(tests: list[dict[str, str]], protocol: int = 4) -> str:
    """Encode tests as the benchmark does."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests), protocol))).decode()


def released(number: int, difficulty: str = "easy", **changes: Any) -> dict[str, Any]:
    tests = [{**test, "testtype": "stdin"} for test in HIDDEN]
    return {
        "question_title": f"Title {number}",
        "question_content": f"Add one to a number. ({number})\r\n",
        "platform": "atcoder",
        "question_id": f"abc{number}_a",
        "contest_id": f"abc{number}",
        "contest_date": "2024-03-02T00:00:00",
        "starter_code": "",
        "difficulty": difficulty,
        "public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}]),
        "private_test_cases": encoded(tests),
        "metadata": "{}",
    } | changes


def plain(number: int, difficulty: str = "easy", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "title": f"Title {number}",
        "statement": f"Add one to a number. ({number})",
        "platform": "codeforces",
        "difficulty": difficulty,
        "contest_date": "2024-03-02",
        "kind": "stdin",
        "func_name": None,
        "starter_code": "",
        "public_tests": [{"input": "1\n", "output": "2\n"}],
        "hidden_tests": HIDDEN,
        "solutions": [{"code": "?", "verdict": "wrong"}, {"code": "print(int(input()) + 1)", "verdict": "correct"}],
    } | changes


def write(path: Path, records: list[Any]) -> Path:
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for place, name in enumerate(problems.RELEASE_FILES):
        write(tmp_path / name, [released(100 * place + n, STRATA[n % 3]) for n in range(30)])
    return tmp_path


def load(place: Path, **changes: Any) -> LoadedTask:
    return load_task("livecodebench", data=str(place), **changes)


def one(tmp_path: Path, *records: Any) -> LoadedTask:
    path = write(tmp_path / "some.jsonl", list(records))
    return load(path, strata=["easy"], per_stratum=len(records), validation_per_stratum=0)


def ids(loaded: LoadedTask) -> list[str]:
    return [problem.id for problem in loaded.problems]


def hidden(loaded: LoadedTask, identity: str) -> list[dict[str, str]]:
    suite = loaded.grader._hidden[identity]  # type: ignore[attr-defined]
    return [{"input": case.stdin, "output": case.expected} for case in suite.cases]


# --- the two layouts ---


def test_the_release_is_read(release: Path) -> None:
    loaded = load(release)
    assert loaded.provenance.source == "benchmark"
    assert "release v6" in loaded.provenance.description
    problem = loaded.problems[0]
    assert dict(problem.data) == {
        "title": f"Title {problem.id[3:-2]}",
        "question": f"Add one to a number. ({problem.id[3:-2]})",
        "starter_code": "",
        "func_name": None,
        "platform": "atcoder",
        "public_tests": ({"input": "1\n", "output": "2\n"},),
        "kind": "stdin",
    }
    assert all(hidden(loaded, identity) == HIDDEN for identity in ids(loaded))
    assert {shot.answer for shot in loaded.validation} == {""}
    fewer = load(release, hidden_tests=1)
    assert fewer.provenance.source == "stand_in"  # grades are not the benchmark's
    assert [hidden(fewer, identity) for identity in ids(loaded)] == [HIDDEN[:1]] * len(loaded.problems)


def test_starter_code_problems_carry_the_methods_name(tmp_path: Path) -> None:
    record = released(1, starter_code="class Solution:\n    def f(self, n):\n        ", metadata='{"func_name": "f"}')
    data = one(tmp_path, record).problems[0].data
    assert (data["kind"], data["func_name"], data["starter_code"]) == (
        "functional",
        "f",
        "class Solution:\n    def f(self, n):",
    )


def test_the_plain_layout_is_read_and_its_solutions_are_for_demonstrations(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [plain(n) for n in range(6)])
    loaded = load(path, strata=["easy"], per_stratum=4, validation_per_stratum=2)
    assert loaded.provenance.source == "stand_in"
    assert "not the release itself (file mine.jsonl)" in loaded.provenance.description
    assert hidden(loaded, loaded.problems[0].id) == HIDDEN
    assert {shot.answer for shot in loaded.validation} == {"print(int(input()) + 1)"}
    assert hidden(loaded, loaded.validation[0].problem.id) == HIDDEN


def test_methods_never_see_hidden_tests_or_solutions(tmp_path: Path) -> None:
    marked = [{"input": "marked-input", "output": "marked-output"}]
    loaded = one(tmp_path, plain(1, hidden_tests=marked, solutions=[{"code": "marked-code", "verdict": "correct"}]))
    assert hidden(loaded, "p1") == marked
    assert b"marked" not in msgspec.json.encode(loaded.problems)


# --- the encoding of private tests ---


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_private_tests_are_decoded_from_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    loaded = one(tmp_path, released(1, private_test_cases=encoded(HIDDEN, protocol)))
    assert hidden(loaded, "abc1_a") == HIDDEN


def test_private_tests_may_be_plain_json(tmp_path: Path) -> None:
    assert hidden(one(tmp_path, released(1, private_test_cases=json.dumps(HIDDEN))), "abc1_a") == HIDDEN


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


class Persistent(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "elsewhere" if isinstance(obj, list) else None


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def persistent() -> bytes:
    out = io.BytesIO()
    Persistent(out).dump([1])
    return out.getvalue()


def test_bad_private_tests_are_named_by_file_and_line(tmp_path: Path) -> None:
    for text, reason in [
        ("no base64!", "private_test_cases: expected JSON, or base64"),
        (base64.b64encode(b"not compressed").decode(), "private_test_cases: expected JSON, or base64"),
        (packed(b"not a pickle"), "private_test_cases: expected JSON, or base64"),
        (packed(b""), "private_test_cases: expected JSON, or base64"),
        (packed(pickle.dumps(["a list"])), "more than a string: EMPTY_LIST"),
        (packed(pickle.dumps(os.getcwd)), "more than a string"),
        (packed(pickle.dumps("[]")[:-1] + b"0" + pickle.dumps("[]")), "more than a string: POP"),
        (packed(pickle.dumps("[]")[:-1] + b"\x94" * 9 + b"."), "more than a string"),
        (packed(persistent()), "more than a string"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-6]).decode(), "cut off"),
        (packed(pickle.dumps("not json")), "expected JSON in a string"),
        (packed(pickle.dumps("[]")), "expected at least one test"),
        (packed(pickle.dumps('[{"input": "1"}]')), "missing required field `output`"),
    ]:
        with pytest.raises(DataError, match=r"some\.jsonl:2: ") as caught:
            one(tmp_path, released(1), released(2, private_test_cases=text))
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_hostile_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    text = packed(pickle.dumps(Touch(target)))
    with pytest.raises(DataError, match="more than a string"):
        decode_private_tests(text, "here:1")
    assert not target.exists()
    pickle.loads(zlib.decompress(base64.b64decode(text)))  # it would have
    assert target.exists()


def test_a_place_in_the_memo_takes_no_memory() -> None:
    text = packed(b"\x80\x02X\x02\x00\x00\x00[]r\xff\xff\xff\x0b.")  # LONG_BINPUT 201,326,591: 1.6 GB as a table
    tracemalloc.start()
    try:
        assert decode_private_tests(text, "here:1") == "[]"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=40), st.sampled_from([b"", b"\x80\x04", pickle.dumps("[]")[:-1], b"V", b"p", b"\x8d"]))
def test_any_bytes_are_read_or_refused(data: bytes, start: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(decode_private_tests(packed(start + data), "here:1"), str)


def test_hidden_tests_are_decoded_for_drawn_problems_only(release: Path) -> None:
    whole = load(release, per_stratum=20)
    for name in problems.RELEASE_FILES:  # spoil every record that was not drawn
        records = [json.loads(line) for line in (release / name).read_bytes().splitlines()]
        drawn = {*ids(whole), *(shot.problem.id for shot in whole.validation)}
        write(
            release / name,
            [r if r["question_id"] in drawn else {**r, "private_test_cases": "spoiled"} for r in records],
        )
    assert load(release, per_stratum=20).provenance == whole.provenance


# --- the draw ---


def test_the_draw_is_balanced_seeded_and_disjoint_from_validation(release: Path) -> None:
    loaded = load(release)
    assert Counter(problem.stratum for problem in loaded.problems) == dict.fromkeys(STRATA, 33)
    assert Counter(shot.problem.stratum for shot in loaded.validation) == dict.fromkeys(STRATA, 4)
    every = [*ids(loaded), *(shot.problem.id for shot in loaded.validation)]
    assert len(set(every)) == len(every) == 111
    assert ids(load(release)) == ids(loaded)
    assert set(ids(load(release, draw_seed=1))) != set(ids(loaded))
    assert ids(load(release, limit=7)) == ids(loaded)[:7]


def test_a_difficulty_that_is_too_small_is_an_error(release: Path) -> None:
    assert len(load(release, per_stratum=56).problems) == 168
    with pytest.raises(DataError, match=r"livecodebench: stratum 'easy' holds 60 problems; expected at least 57"):
        load(release, per_stratum=57)


def test_filters_decide_what_is_drawn_from(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        [
            released(1, contest_date="2024-01-01T00:00:00"),
            released(2, contest_date="2024-06-30T00:00:00"),
            released(3, contest_date="2024-12-31T00:00:00"),
            released(4, platform="leetcode"),
            released(311, question_id="abc311_c"),
            released(5, question_id="2951", question_title="Find the Peaks"),
        ],
    )

    def drawn(count: int, **changes: Any) -> set[str]:
        changes = {"strata": ["easy"], "per_stratum": count, "validation_per_stratum": 0, **changes}
        loaded = load(path, **changes)
        assert len(loaded.problems) == count
        with pytest.raises(DataError, match=f"holds {count} problems"):
            load(path, **{**changes, "per_stratum": count + 1})
        return set(ids(loaded))

    assert drawn(4) == {"abc1_a", "abc2_a", "abc3_a", "abc4_a"}
    assert drawn(6, exclude=[]) >= {"abc311_c", "2951"}
    assert drawn(2, start_date="2024-06-30") == {"abc2_a", "abc3_a"}
    assert drawn(2, end_date="2024-06-29") == {"abc1_a", "abc4_a"}
    assert drawn(1, start_date="2024-06-30", end_date="2024-06-30") == {"abc2_a"}
    assert drawn(1, platforms=["leetcode"]) == {"abc4_a"}
    with pytest.raises(ConfigError, match=r"task\.platforms: expected one of atcoder, leetcode, got 'kattis'"):
        load(path, platforms=["kattis"])


def test_a_problem_that_is_given_twice_is_drawn_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Or it could be a demonstration of one difficulty and a problem of another."""
    records = [
        *(plain(n) for n in range(3)),
        *(plain(10 + n, "hard", statement=plain(n)["statement"]) for n in range(3)),
        *(plain(20 + n, "hard") for n in range(3)),
        plain(30, "hard", statement=plain(0)["statement"], starter_code="def f(n):", kind="functional", func_name="f"),
    ]
    path = write(tmp_path / "a.jsonl", records)
    drawn = load(path, strata=["easy", "hard"], per_stratum=2, validation_per_stratum=1)
    every = {*ids(drawn), *(shot.problem.id for shot in drawn.validation)}
    assert len(every) == 6
    assert {"p0", "p1", "p2"} < every <= {"p0", "p1", "p2", "p20", "p21", "p22", "p30"}
    assert "a.jsonl:4: left out, the same problem as" in caplog.text
    # one that is not drawn from takes no other's place
    filtered = load(path, strata=["hard"], per_stratum=7, validation_per_stratum=0)
    assert set(ids(filtered)) == {"p10", "p11", "p12", "p20", "p21", "p22", "p30"}
    renewed = load(path, strata=["easy", "hard"], exclude=["p1"], per_stratum=2, validation_per_stratum=0)
    assert {"p0", "p2"} < set(ids(renewed))
    assert set(ids(load(path, strata=["hard"], exclude=["p10"], per_stratum=6, validation_per_stratum=0))) == {
        *("p11", "p12", "p20", "p21", "p22", "p30")
    }


def test_the_digest_depends_on_hidden_tests(tmp_path: Path) -> None:
    before = one(tmp_path, released(1)).provenance.digest
    assert one(tmp_path, released(1, private_test_cases=encoded([*HIDDEN, HIDDEN[0]]))).provenance.digest != before


# --- where the files come from ---


def test_a_missing_file_of_the_release_is_named(release: Path) -> None:
    (release / "test4.jsonl").unlink()
    with pytest.raises(DataError, match=r"test4\.jsonl is missing .*task\.data='.*/test\*\.jsonl'"):
        load(release)
    part = load(release / "test*.jsonl", per_stratum=5)
    assert part.provenance.source == "stand_in"
    assert load(release / "test*.jsonl", per_stratum=5, source="benchmark").provenance.source == "benchmark"


def test_evorun_data_is_looked_in(release: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> None:
    outer = tmp_path_factory.mktemp("data")
    release.rename(outer / "livecodebench")
    monkeypatch.setenv("EVORUN_DATA", str(outer))
    assert load_task("livecodebench").provenance.source == "benchmark"


def test_a_hub_data_set_is_read_from_its_snapshot(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **options: asked.append((name, options)) or str(release)
    )
    loaded = load_task("livecodebench", hub_id="livecodebench/code_generation_lite")
    assert ids(loaded) == ids(load(release))
    assert loaded.provenance.source == "benchmark"
    [(name, options)] = asked
    assert name == "livecodebench/code_generation_lite"
    assert options == {"repo_type": "dataset", "allow_patterns": list(problems.RELEASE_FILES)}


def test_nothing_found_says_where_to_get_it() -> None:
    with pytest.raises(DataError, match=r"livecodebench/code_generation_lite.*EVORUN_DATA.*task.source=sample"):
        load_task("livecodebench")


def test_missing_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected a folder, a file or a pattern of files, got '.*/nowhere'"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"expected test\.jsonl to test6\.jsonl"):
        load(tmp_path)


def test_the_sample_needs_no_files_and_says_so() -> None:
    loaded = load_task("livecodebench", source="sample")
    assert Counter(problem.stratum for problem in loaded.problems) == dict.fromkeys(STRATA, 4)
    assert Counter(shot.problem.stratum for shot in loaded.validation) == dict.fromkeys(STRATA, 4)
    limited = load_task("livecodebench", source="sample", limit=6)
    assert Counter(problem.stratum for problem in limited.problems) == dict.fromkeys(STRATA, 2)
    assert [shot.problem.id for shot in limited.validation] == [shot.problem.id for shot in loaded.validation]
    assert all(shot.answer for shot in loaded.validation)
    assert loaded.provenance.source == "sample"
    assert "not LiveCodeBench" in loaded.provenance.description


# --- records ---


def test_a_bad_record_of_the_release_is_named_by_file_and_line(tmp_path: Path) -> None:
    for bad, reason in [
        (b"{not json", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[1]", "Expected `object`, got `array`"),
        ({"question_id": "x"}, "missing required field"),
        (released(9, question_content=" "), "statement: expected a non-empty string"),
        (released(9, question_id=""), "id: expected a non-empty string"),
        (released(9, difficulty="extreme"), "difficulty: expected one of easy, medium, hard, got 'extreme'"),
        (released(9, contest_date="soon"), "contest_date: expected a date such as 2024-06-30, got 'soon'"),
        (released(9, public_test_cases="["), "public_test_cases: expected JSON in a string"),
        (released(9, public_test_cases="[1]"), "public_test_cases: expected JSON in a string"),
        (released(9, metadata="none"), "metadata: expected JSON in a string"),
        (released(9, metadata='{"func_name": "no name"}'), "func_name: expected the name of a method"),
        (released(1), r"id 'abc1_a' is already used in .*some\.jsonl:1"),
    ]:
        with pytest.raises(DataError, match=rf"some\.jsonl:3: .*{reason}") as caught:
            one(tmp_path, released(1), b"", bad)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "interactive"}, "Invalid enum value 'interactive'"),
        ({"kind": "functional"}, "func_name: expected one exactly where kind is functional, got None"),
        ({"func_name": "f"}, "func_name: expected one exactly where kind is functional, got 'f'"),
        ({"hidden_tests": []}, "hidden_tests: expected at least one test"),
        ({"hidden_tests": [{"input": 1, "output": ""}]}, "Expected `str`, got `int`"),
        ({"public_tests": "none"}, "Expected `array`, got `str`"),
    ],
)
def test_a_bad_plain_record_is_named_by_file_and_line(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=rf"some\.jsonl:1: .*{reason}"):
        one(tmp_path, plain(1, **changes))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"some\.jsonl:1: expected a record of LiveCodeBench .*the fields answer, options"
    ):
        one(tmp_path, {"options": [], "answer": "A"})


# --- configuration ---


def test_bad_values_are_refused_by_key() -> None:
    for changes, key in [
        ({"source": "web"}, "task.source"),
        ({"per_stratum": 0}, "task.per_stratum"),
        ({"validation_per_stratum": -1}, "task.validation_per_stratum"),
        ({"limit": 0}, "task.limit"),
        ({"strata": ["extreme"]}, "task.strata"),
        ({"strata": []}, "task.strata"),
        ({"strata": ["hard", "hard"]}, "task.strata"),
        ({"start_date": "2024"}, "task.start_date"),
        ({"end_date": "20240630"}, "task.end_date"),
        ({"time_limit_s": 0}, "task.time_limit_s"),
        ({"stated_time_limit_s": -1}, "task.stated_time_limit_s"),
        ({"memory_mib": 1}, "task.memory_mib"),
        ({"reasoning_max_chars": 0}, "task.reasoning_max_chars"),
        ({"shown_reasoning_chars": 0}, "task.shown_reasoning_chars"),
        ({"solution_max_chars": 0}, "task.solution_max_chars"),
        ({"source": "sample", "data": "x"}, "task.data"),
        ({"source": "hub"}, "task.hub_id"),
    ]:
        with pytest.raises(ConfigError, match=key):
            task_config("livecodebench", **changes)


# --- real problems in the plain layout ---


def have(name: str) -> Callable[..., Any]:
    return pytest.mark.skipif(not (TEST_DATA / name).is_file(), reason=f"{name} is not there (EVORUN_TEST_DATA)")


@have("lcb_with_tests.jsonl")
@have("lcb_stdin_samples.jsonl")
def test_real_problems_are_read() -> None:
    loaded = load(TEST_DATA / "lcb_*.jsonl")
    assert Counter(problem.stratum for problem in loaded.problems) == dict.fromkeys(STRATA, 33)
    assert Counter(problem.data["kind"] for problem in loaded.problems).keys() == {"stdin", "functional"}
    assert loaded.provenance.source == "stand_in"
    entries = problems.read_entries(problems.find_files(str(TEST_DATA / "lcb_*.jsonl")))
    assert len(entries) == 294
    assert all(entry.answers().hidden for entry in entries)

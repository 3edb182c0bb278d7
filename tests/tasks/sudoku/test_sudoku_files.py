"""Puzzles from files: 81-character lines, other sizes, JSONL, and files that are none of these."""

import os
from pathlib import Path

import msgspec
import pytest
from sudoku_fixture import NO_TOOLS, TASK, loaded, rows_of
from test_sudoku_solver import records

from building import load_task
from evorun.errors import DataError
from evorun.tasks.base import LoadedTask
from evorun.tasks.sudoku import instances

SYMBOLS = ".123456789ABCDEFGHIJKLMNOP"


def line(box: int, number: int, empty: str = ".") -> str:
    grid = rows_of(loaded(box).problems[number].data["grid"])
    return "".join(SYMBOLS[value] for row in grid for value in row).replace(".", empty)


def load(path: Path, **changes: object) -> LoadedTask:
    return load_task("sudoku", data=str(path), **changes)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.nightly
def test_text_files_of_all_sizes(tmp_path: Path) -> None:
    lines = [
        "\ufeff# puzzles of three sizes",
        line(3, 0),
        "",
        f"  {line(3, 1, '0')}\r",
        line(2, 0),
        "# last",
        line(4, 0).lower(),
    ]
    given = load(write(tmp_path / "mixed.txt", "\n".join(lines)), empty_cells=999, box=2)
    expected = [loaded(3).problems[0], loaded(3).problems[1], loaded(2).problems[0], loaded(4).problems[0]]
    assert [problem.data for problem in given.problems] == [problem.data for problem in expected]
    assert [problem.id for problem in given.problems] == ["line_0002", "line_0004", "line_0005", "line_0007"]
    assert [problem.stratum for problem in given.problems] == ["9x9", "9x9", "4x4", "16x16"]
    assert (given.provenance.source, given.provenance.description) == ("stand_in", "instances of file mixed.txt")


@pytest.mark.nightly
async def test_the_outside_sets_load_in_both_formats_with_their_solutions(tmp_path: Path) -> None:
    unique = [record for record in records() if record["solutions"] == 1][::4]
    jsonl = write(tmp_path / "some.jsonl", b"\n".join(msgspec.json.encode(record) for record in unique))
    text = write(tmp_path / "some.txt", "\n".join(record["puzzle"].replace(".", "0") for record in unique))
    from_json, from_text = load(jsonl, instances=20), load(text, instances=20)
    assert [p.data for p in from_json.problems] == [p.data for p in from_text.problems]
    assert [p.id for p in from_json.problems] == [record["id"] for record in unique[:20]]
    solutions = {record["id"]: record["solution"] for record in unique}
    for problem in from_json.problems:
        rows = [solutions[problem.id][k : k + 9] for k in range(0, 81, 9)]
        response = TASK.parse(problem, "```\n" + "\n".join(rows) + "\n```")
        assert (await from_json.grader.grade(problem, response, NO_TOOLS)).correct
    assert len(from_json.validation) == min(8, len(unique) - 20)


def test_outside_puzzles_without_one_solution_are_named_with_their_count(tmp_path: Path) -> None:
    for record in [record for record in records() if record["solutions"] != 1][::3]:
        count = record["solutions"]
        said = "100 or more" if count >= 100 else str(count)
        path = write(tmp_path / "bad.txt", f"{line(3, 0)}\n{record['puzzle']}\n")
        with pytest.raises(DataError, match=rf"bad\.txt:2: expected a puzzle with exactly one .* has {said}$"):
            load(path)


def test_lines_after_the_last_one_needed_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "long.txt", f"{line(3, 0)}\n{line(3, 1)}\nnonsense\n" * 1000)
    given = load(path, instances=1, validation_instances=1)
    assert (len(given.problems), len(given.validation)) == (1, 1)


def test_files_that_are_no_puzzles(tmp_path: Path) -> None:
    for name, content, message in [
        ("a.txt", b"", "expected at least one instance, found none"),
        ("a.txt", b"# nothing\n\n", "expected at least one instance, found none"),
        ("a.txt", b"\x00\xff\xfe\x89PNG\r\n", r"a\.txt:1: expected text in UTF-8"),
        ("a.txt", b"\x00" * 5000, r"a\.txt:1: expected 16, 81, 256, 625 characters, one per cell, got 5000"),
        ("a.txt", b"12" * 40, r"a\.txt:1: expected 16, 81, 256, 625 characters, one per cell, got 80"),
        ("a.txt", b"#\n" + b"1" * 3_000_000, r"a\.txt:2: expected 16, 81"),
        ("a.txt", b"." * 80 + b"x", r"a\.txt:1: expected '\.', '0' or one of 123456789, got 'x'"),
        ("a.txt", b"." * 80 + b"\x1b", r"got '\\x1b'"),
        ("a.txt", b"." * 15 + b"5", r"expected '\.', '0' or one of 1234, got '5'"),
        ("a.txt", b"." * 81, r"a\.txt:1: .* exactly one solution, this one has 100 or more"),
        ("a.txt", b"11" + b"." * 79, r"a\.txt:1: .* exactly one solution, this one has 0"),
        ("a.jsonl", b"[1]", r"a\.jsonl:1: expected \{"),
        ("a.jsonl", b"{", r"a\.jsonl:1: expected \{"),
        ("a.jsonl", b'{"puzzle": 5}', r"a\.jsonl:1: expected \{"),
        ("a.jsonl", b'{"grid": "5"}', r"a\.jsonl:1: expected \{"),
        ("a.jsonl", b'{"puzzle": ""}', r"a\.jsonl:1: expected 16, 81"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: "),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            load(write(tmp_path / name, content))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_an_id_used_twice(tmp_path: Path) -> None:
    record = msgspec.json.encode({"id": "same", "puzzle": line(3, 0)})
    with pytest.raises(DataError, match=r"two\.jsonl:2: id 'same' is already used in .*two\.jsonl:1"):
        load(write(tmp_path / "two.jsonl", record + b"\n" + record))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path, message in ((tmp_path, "regular file"), (tmp_path / "pipe.txt", "regular file"), (tmp_path / "no", "no")):
        with pytest.raises(DataError, match=message):
            load(path)


def test_a_puzzle_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "_MAX_GUESSES", 5)
    with pytest.raises(DataError, match=r"hard\.txt:1: .* could not be counted in 5 guesses"):
        load(write(tmp_path / "hard.txt", "." * 81))

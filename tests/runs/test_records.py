import errno
import json
import os
from io import FileIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import ContradictionError, RunDirectoryError
from evorun.runs.records import RecordFile, write_atomically

PROBLEMS = ["b", "a", "c"]


class Record(msgspec.Struct):
    problem: str
    number: int
    text: str


def record(problem: str, number: int) -> Record:
    return Record(problem, number, "x\n☃" * number)


def produce(path: Path, schedule: list[str]) -> None:
    """Append each named problem's next record."""
    file = RecordFile(path)
    counts = dict.fromkeys(PROBLEMS, 0)
    for problem in schedule:
        file.append([record(problem, counts[problem])])
        counts[problem] += 1
    file.close()


@given(
    first=st.permutations(PROBLEMS * 3),
    second=st.permutations(PROBLEMS * 3),
    cut=st.integers(0, 9),
    torn=st.integers(0, 30),
)
def test_any_interruption_and_order_gives_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], cut: int, torn: int
) -> None:
    folder = tmp_path_factory.mktemp("records")
    whole = folder / "whole.jsonl"
    produce(whole, PROBLEMS * 3)
    RecordFile(whole).finish(PROBLEMS)
    path = folder / "interrupted.jsonl"
    produce(path, first[:cut])
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - torn)])
    produce(path, second)
    RecordFile(path).finish(PROBLEMS)
    assert path.read_bytes() == whole.read_bytes()
    assert [json.loads(line)["problem"] for line in whole.read_text().splitlines()] == sorted(
        PROBLEMS * 3, key=PROBLEMS.index
    )


def test_nothing_written_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    produce(path, ["a", "a", "b"])
    before = path.read_bytes()
    produce(path, ["a", "a", "a"])
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes().splitlines()) == 4


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"cannot write .*: No such file"):
        RecordFile(tmp_path / "gone" / "r.jsonl")


def test_write_atomically_leaves_no_other_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", b"one")
    write_atomically(tmp_path / "f", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"two"


def test_a_damaged_line_ends_the_file_and_is_written_again(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole.jsonl", tmp_path / "damaged.jsonl"
    produce(whole, ["a", "b", "a", "c"])
    lines = whole.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(lines[0] + b"\x00\x00\xff\n" + lines[2])
    produce(damaged, ["a", "b", "a", "c"])
    assert damaged.read_bytes() == whole.read_bytes()


def test_a_record_that_is_not_what_the_run_gives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    produce(path, ["a", "a", "b"])
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"number":1', b'"number":9'))
    with pytest.raises(ContradictionError, match=r"record 2 of problem 'a' differs from what this run produces"):
        produce(path, ["a", "a", "b"])


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(FileIO):
        def write(self, content: memoryview) -> int:  # type: ignore[override]
            return super().write(content[:7])

    produce(tmp_path / "whole.jsonl", PROBLEMS * 3)
    monkeypatch.setattr("evorun.runs.records.FileIO", Short)
    produce(tmp_path / "short.jsonl", PROBLEMS * 3)
    assert (tmp_path / "short.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_in_the_middle_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    content, records = tmp_path / "f", tmp_path / "r.jsonl"
    write_atomically(content, b"one")
    produce(records, ["a", "b", "a"])
    before = records.read_bytes()
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(RunDirectoryError, match=r"cannot write .*: No space left"):
        write_atomically(content, b"two")
    with pytest.raises(RunDirectoryError, match=r"cannot write .*: No space left"):
        RecordFile(records).finish(["b", "a"])
    assert content.read_bytes() == b"one"
    assert records.read_bytes() == before

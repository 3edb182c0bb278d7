import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.errors import RunDirectoryError
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

import errno
import os
from pathlib import Path

import pytest

from evorun.errors import RunDirectoryError
from evorun.runs.archive import Archive
from evorun.runs.candidates import Candidate, Feedback

CANDIDATE = Candidate(
    id="1.0",
    generation=1,
    operator="evolve",
    parents=("0.0", "0.1"),
    text="Größe \0",
    answer="B",
    feedback=Feedback(text="failed", score=0.5),
)


def test_what_is_put_comes_back_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, body, place: pwrite(file, body[:7], place))  # short writes
    archive = Archive(tmp_path)
    longer = Candidate(id="1.1", generation=1, operator="evolve", text="x" * 100_000, answer=None, error="no_answer: x")
    places = [archive.put(one) for one in (CANDIDATE, longer, CANDIDATE)]
    assert [archive.get(place, Candidate) for place in reversed(places)] == [CANDIDATE, longer, CANDIDATE]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(RunDirectoryError, match=f"in a file of {tmp_path}: No space left on device$"):
        Archive(tmp_path).put(CANDIDATE)

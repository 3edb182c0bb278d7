"""A run directory that is closed is free for others, and leaves nothing but the run."""

import os
from pathlib import Path

import pytest

from evorun.errors import RunDirectoryError
from evorun.runs.directory import LOCK, RunDirectory, new_manifest
from evorun.runs.files import is_locked
from evorun.runs.manifest import Provenance
from evorun.runs.scores import ACCURACY


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    begun = RunDirectory(tmp_path / "run")
    provenance = Provenance("sample", "problems", "0")
    about = {"method": "zero_shot", "task": "aime", "models": {}, "regime": "problem_only", "simulated": True}
    begun.begin(new_manifest(command=[], seed=0, provenance=provenance, scores=(ACCURACY,), config={}, **about))
    return begun


def test_it_is_locked_until_it_is_closed_and_the_spare_space_is_returned(directory: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="another evorun process is using"):
        RunDirectory(directory.path)
    assert (directory.path / ".spare").stat().st_size > 0
    directory.close()
    assert not is_locked(directory.path / LOCK)
    assert not (directory.path / ".spare").exists()


def test_a_second_close_takes_no_lock_from_who_opened_it_since(directory: RunDirectory) -> None:
    directory.close()
    following = RunDirectory(directory.path)
    directory.close()
    assert is_locked(directory.path / LOCK)
    following.close()


def test_no_file_of_it_stays_open(directory: RunDirectory) -> None:
    file = directory.records("metrics")  # held here, so that it is not closed by being forgotten
    own = str(directory.path)
    assert {Path(path).name for path in open_files() if path.startswith(own)} >= {"metrics.jsonl", "journal.sqlite"}
    directory.close()
    assert [path for path in open_files() if path.startswith(own)] == []
    assert file.path.exists()


def open_files() -> list[str]:
    return [path for link in Path("/proc/self/fd").iterdir() if (path := os.path.realpath(link))]

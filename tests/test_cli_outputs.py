"""Files that verbs write where their user says: none is replaced unasked, and no record of a run ever."""

import json
from pathlib import Path

import pytest

from evorun_process import evorun_here
from reports.comparison_fixture import write_method

GRADE = ("grade", "task=mathbench", "task.source=sample", "responses=given.jsonl")
RATE = ("tournament", "matches=given.jsonl", "resamples=0")
REPORT = ("report", "sweep")
VERBS = [(GRADE, "output=", ".jsonl", "overwrite=true"), (RATE, "output=", ".json", "overwrite=true")]
VERBS += [(REPORT, "--output=", ".html", "--overwrite")]


@pytest.fixture(name="sweep")
def _sweep(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write_method(tmp_path / "sweep" / name, [True, False])
    (tmp_path / "given.jsonl").write_text(
        json.dumps({"a": "x", "b": "y", "winner": "x", "id": "sample/algebra/1", "response": "A"}) + "\n"
    )
    return tmp_path / "sweep"


@pytest.mark.parametrize(("verb", "key", "ending", "overwrite"), VERBS)
def test_what_is_there_is_replaced_when_asked_for_and_records_never(
    sweep: Path, verb: tuple[str, ...], key: str, ending: str, overwrite: str
) -> None:
    folder = sweep.parent
    before = {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()}
    inside = [f"sweep/a/{name}{ending}" for name in ("predictions", "new", "artifacts/new")]
    for words in ([f"{key}{name}", *more] for name in inside for more in ([], [overwrite])):
        done = evorun_here(*verb, *words, cwd=folder)
        assert done.returncode == 1
        assert "expected a place outside run directories" in done.stderr
    mine = folder / f"mine{ending}"
    mine.write_text("mine")
    done = evorun_here(*verb, f"{key}{mine.name}", cwd=folder)
    assert done.stderr == f"error: {key.rstrip('=')}: mine{ending} exists; {overwrite} replaces it\n"
    assert mine.read_text() == "mine"
    assert {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()} == before


@pytest.mark.sample(1)
@pytest.mark.parametrize(("verb", "key", "ending", "overwrite"), VERBS[1:])
def test_a_file_is_replaced_when_the_user_says_so(
    sweep: Path, verb: tuple[str, ...], key: str, ending: str, overwrite: str
) -> None:
    mine = sweep.parent / f"mine{ending}"
    mine.write_text("mine")
    done = evorun_here(*verb, f"{key}{mine.name}", overwrite, cwd=sweep.parent)
    assert done.returncode == 0, done.stderr
    assert mine.read_text() != "mine"


def test_a_default_output_beside_the_responses_of_a_run_is_refused(sweep: Path) -> None:
    (sweep / "a" / "given.jsonl").write_bytes((sweep.parent / "given.jsonl").read_bytes())
    done = evorun_here(*GRADE[:-1], "responses=sweep/a/given.jsonl", cwd=sweep.parent)
    assert "output: expected a place outside run directories, got sweep/a" in done.stderr
    done = evorun_here(*REPORT, "--export=sweep/a/figures", cwd=sweep.parent)
    assert "--export: expected a place outside run directories, got sweep/a/figures" in done.stderr
    done = evorun_here(*REPORT, "--export=given.jsonl", cwd=sweep.parent)
    assert done.stderr == "error: --export: expected a folder, found a file at given.jsonl; choose another place\n"


def test_an_export_replaces_files_when_the_user_says_so(sweep: Path) -> None:
    export = (*REPORT, "--export=figures")
    (sweep.parent / "figures").mkdir()
    (sweep.parent / "figures" / "arms.csv").write_text("mine")
    before = {path: path.read_bytes() for path in sweep.parent.rglob("*.html")}
    done = evorun_here(*export, cwd=sweep.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "figures/arms.csv exists; --overwrite replaces it" in done.stderr
    assert {path: path.read_bytes() for path in sweep.parent.rglob("*.html")} == before
    done = evorun_here(*export, "--overwrite", cwd=sweep.parent)
    assert done.returncode == 0
    number = len(list((sweep.parent / "figures").iterdir()))
    assert done.stdout.endswith(f"\nExported: {number} files (figures and tables) in figures\n")
    assert (sweep.parent / "figures" / "arms.csv").read_text() != "mine"

"""Runs that have ended, resumed or reported: nothing is done twice, and what has changed since is said."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from evorun.simulation.engine import SimulatedConfig
from evorun_process import DRY_RUN, SMALL, evorun, evorun_here, records

TINY = (*DRY_RUN, *SMALL, "task.limit=1", "method.generations=1")


@pytest.fixture(name="finished", scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here(*TINY, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(name="run")
def _run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the engine was opened")

    monkeypatch.setattr(SimulatedConfig, "open_for", refuse)


def overwrite(file: Path) -> None:
    """Change one byte in the middle of the file's last third, which is a text in every record file."""
    content = bytearray(file.read_bytes())
    place = content.index(b"e", len(content) * 2 // 3)
    content[place] = ord("x")
    file.write_bytes(content)


@pytest.mark.usefixtures("no_engine")
def test_a_finished_run_is_not_carried_out_again(run: Path) -> None:
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in run.glob("*.json*")}
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run: this run is complete and its files are unchanged: nothing to do\n")
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in run.glob("*.json*")} == before
    assert "accuracy" in done.stdout


@pytest.mark.usefixtures("no_engine")
def test_a_finished_runs_page_is_drawn_again_only_where_something_is_newer(run: Path) -> None:
    page = run / "report.html"

    def drawn_by_a_resume() -> bool:
        before = page.stat().st_mtime_ns if page.exists() else 0
        assert evorun_here("resume", "run", cwd=run.parent).returncode == 0
        return page.stat().st_mtime_ns != before

    assert not drawn_by_a_resume()
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / "rubric_scores.json").write_text("[]")
    os.utime(page, ns=(page.stat().st_atime_ns, page.stat().st_mtime_ns - 10**9))
    assert drawn_by_a_resume()
    page.unlink()
    assert drawn_by_a_resume()


@pytest.mark.usefixtures("no_engine")
def test_a_record_file_that_is_gone_is_made_again_from_the_journal(finished: Path, run: Path) -> None:
    (run / "steps.jsonl").unlink()
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 0
    assert "warning: steps.jsonl is not as the run left it: No such file or directory" in done.stderr
    assert records(run) == records(finished)
    assert manifest(run)["resumes"] == 1


@pytest.mark.parametrize("name", ["candidates.jsonl", "predictions.jsonl", "journal.sqlite"])
def test_a_report_says_what_has_changed(run: Path, name: str) -> None:
    overwrite(run / name)
    done = evorun_here("report", "run", cwd=run.parent)
    if done.returncode == 0:  # else the change has made a record unreadable, which is told with the file's name too
        assert "Changed: " in done.stdout
        assert f"{name} is " in " ".join(done.stdout.split())
        assert f"{name} is " in (run / "report.html").read_text()
    assert name in done.stdout + done.stderr


def test_records_that_were_edited_are_told_without_advice_that_cannot_work(run: Path) -> None:
    overwrite(run / "candidates.jsonl")
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert "candidates.jsonl" in line
    assert "remove it, and the run writes it again from the journal" in line
    assert "evorun resume" not in line
    (run / "candidates.jsonl").unlink()  # as the line says
    assert evorun_here("resume", "run", cwd=run.parent).returncode == 0


def test_an_overwritten_journal_is_one_line(run: Path) -> None:
    content = bytearray((run / "journal.sqlite").read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    (run / "journal.sqlite").write_bytes(content)
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 1
    assert "journal.sqlite is damaged" in done.stderr
    assert "restore it from a copy, or start a new run" in done.stderr
    assert "evorun resume" not in done.stderr
    assert "bug" not in done.stderr
    assert manifest(run)["status"] == "completed"  # what the run has left still stands


@pytest.mark.sample(1)
@pytest.mark.parametrize("status", ["completed", "interrupted", "running"])
def test_calls_whose_journal_is_gone_are_made_again_only_when_asked_for(run: Path, status: str) -> None:
    (run / "journal.sqlite").unlink()
    (run / "manifest.json").write_text(json.dumps({**manifest(run), "status": status}))
    before = records(run)
    for command in (("resume", "run"), (*TINY, "hydra.run.dir=run")):
        done = evorun_here(*command, cwd=run.parent)
        assert done.returncode == 1
        *_, line = done.stderr.splitlines()
        assert line.startswith("error: run/journal.sqlite is missing")
        assert line.endswith(": evorun resume run --redo-calls")
        assert not (run / "journal.sqlite").exists()
    assert evorun_here("resume", "run", "--redo-calls", cwd=run.parent).returncode == 0
    assert manifest(run)["status"] == "completed"
    assert records(run) == before


@pytest.mark.nightly
def test_too_few_file_descriptors_are_no_defect(tmp_path: Path) -> None:
    program = tmp_path / "few.py"
    program.write_text(
        "import resource\nfrom evorun.cli import main\nresource.setrlimit(resource.RLIMIT_NOFILE, (11, 11))\nmain()\n"
    )
    done = evorun(*TINY, "hydra.run.dir=run", cwd=tmp_path, program=str(program))
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert "Too many open files" in line
    assert "bug" not in line
    assert evorun_here("resume", "run", cwd=tmp_path).returncode == 0

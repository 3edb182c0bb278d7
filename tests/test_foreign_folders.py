"""Run folders that somebody else has filled: what evorun does with one harms nobody who was not asked."""

import os
import shutil
from pathlib import Path

import pytest

from evorun_process import DRY_RUN, SMALL, evorun_here


@pytest.fixture(name="finished", scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(name="run")
def _run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize(
    "link",
    [
        *("evorun.log", ".lock", "journal.sqlite", "steps.jsonl", "steps.ordered", ".manifest.json.tmp"),
        *(".hydra/.config.yaml.tmp", "artifacts", "checkpoints"),
    ],
)
def test_a_resume_writes_through_no_link(run: Path, link: str) -> None:
    outside = run.parent / "outside"
    outside.write_bytes(b"precious\n")
    (run / link).unlink(missing_ok=True)
    (run / link).symlink_to(outside)
    done = evorun_here("resume", "run", cwd=run.parent)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "symbolic link" in done.stderr
    assert outside.read_bytes() == b"precious\n"


def test_a_report_writes_through_no_link(run: Path) -> None:
    outside = run.parent / "outside"
    outside.write_bytes(b"precious\n")
    (run / "report.html").unlink()
    for name in ("report.html", f".report-{os.getpid()}.html", ".report.html.tmp"):
        (run / name).symlink_to(outside)
    assert evorun_here("report", "run", cwd=run.parent).returncode == 0
    assert outside.read_bytes() == b"precious\n"
    assert "<html" in (run / "report.html").read_text()


def test_a_sweep_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious\n")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "multirun.yaml").symlink_to(outside)
    done = evorun_here("-m", *DRY_RUN, *SMALL, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 1
    assert "symbolic link" in done.stderr
    assert outside.read_bytes() == b"precious\n"

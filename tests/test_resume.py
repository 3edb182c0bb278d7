"""A run that is stopped at any moment, in any way, ends as if nothing had happened."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from evorun.runs.files import take_lock
from evorun.runs.journal_reader import read_journal
from evorun_process import DRY_RUN, SMALL, evorun, evorun_here, records, reopen, start
from journals import wait_for_effects

SLOW = (*DRY_RUN, *SMALL, "engine.seconds_per_token=0.0005")
"""Slow enough to be killed in the middle: some tens of milliseconds a call."""


def results_without_times(run: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((run / "results.json").read_text())
    for role in results["cost"].values():
        del role["seconds"]
    return results


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A finished run and the seconds that it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    done = evorun(*SLOW, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run", time.monotonic() - started


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.6, 0.95])
def test_killed_run_resumes_to_the_same_bytes(undisturbed: tuple[Path, float], tmp_path: Path, share: float) -> None:
    reference, duration = undisturbed
    run = tmp_path / "run"
    process = start(*SLOW, f"hydra.run.dir={run}", cwd=tmp_path)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=share * duration)
    process.kill()
    process.wait()
    again = ("resume", run) if (run / "manifest.json").exists() else (*SLOW, f"hydra.run.dir={run}")
    resumed = evorun_here(*again, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert records(run) == records(reference)
    assert results_without_times(run) == results_without_times(reference)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_a_signal_ends_the_run_as_interrupted(
    undisturbed: tuple[Path, float], tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    process = start(*SLOW, f"hydra.run.dir={run}", cwd=tmp_path)
    wait_for_effects(run, 10, process)
    process.send_signal(number)
    assert process.wait(timeout=120) == 130
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["status"], manifest["error"]) == ("interrupted", f"stopped by {number.name}")
    assert evorun_here("resume", run, cwd=tmp_path).returncode == 0
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["status"], manifest["error"]) == ("completed", None)
    assert records(run) == records(undisturbed[0])


def test_nothing_recorded_is_asked_for_twice(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*SLOW, f"hydra.run.dir={run}", cwd=tmp_path)
    wait_for_effects(run, 10, process)
    process.kill()
    process.wait()
    before = list(read_journal(run / "journal.sqlite"))
    resumed = evorun_here("resume", run, cwd=tmp_path)
    assert resumed.returncode == 0
    after = list(read_journal(run / "journal.sqlite"))
    # a call's measured seconds tell a repetition from the recording
    assert before
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert records(run) == records(undisturbed[0])
    replayed = len(before)
    new = json.loads((run / "results.json").read_text())["cost"]["total"]["calls"] - replayed
    assert f"\n{replayed} calls came from the journal, {new} are new\n" in resumed.stdout


def test_a_directory_in_use_is_refused(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed[0], run)
    reopen(run)
    lock = take_lock(run / ".lock")
    try:
        second = evorun_here("resume", run, cwd=tmp_path)
    finally:
        os.close(lock)
    assert second.returncode == 1
    assert "another evorun process is using" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_another_configuration_is_refused_by_name(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run, _ = undisturbed
    before = contents(run)
    other = evorun_here(*SLOW, "method.duels=5", "seed=1", f"hydra.run.dir={run}", cwd=tmp_path)
    assert other.returncode == 1
    assert "method.duels: 4 in the directory, 5 now" in other.stderr
    assert "seed: 0 in the directory, 1 now" in other.stderr
    assert contents(run) == before


def test_another_version_is_refused(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run, _ = undisturbed
    manifest = (run / "manifest.json").read_text()
    try:
        (run / "manifest.json").write_text(manifest.replace('"evorun_version": "', '"evorun_version": "0.0.'))
        other = evorun_here("resume", run, cwd=tmp_path)
    finally:
        (run / "manifest.json").write_text(manifest)
    assert other.returncode == 1
    assert "was made by evorun 0.0." in other.stderr


def test_replay_repeats_a_run_without_its_engine(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run, _ = undisturbed
    how = [option for option in SLOW if not option.startswith("engine")]
    done = evorun_here(*how, "engine=replay", f"engine.run={run}", "hydra.run.dir=again", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "again") == records(run)
    assert (tmp_path / "again" / "results.json").read_bytes() == (run / "results.json").read_bytes()
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["simulated"] is True


def test_replay_refuses_what_was_not_recorded(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    run, _ = undisturbed
    how = [option for option in SLOW if not option.startswith("engine")]
    done = evorun_here(*how, "seed=7", "engine=replay", f"engine.run={run}", "hydra.run.dir=again", cwd=tmp_path)
    assert done.returncode == 1
    assert "holds no reply to this request" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_torn_last_line_is_mended(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    reference, _ = undisturbed
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    steps = (run / "steps.jsonl").read_bytes()
    (run / "steps.jsonl").write_bytes(steps[: len(steps) * 2 // 3])
    assert evorun_here("resume", run, cwd=tmp_path).returncode == 0
    assert records(run) == records(reference)

"""Signals outside the event loop of a run: the program ends in order, and says what goes on with it."""

import json
import signal
from pathlib import Path

import pytest

from evorun_process import evorun

SENDING = """
import os, signal, sys
import evorun.cli.running, evorun.reports.html, evorun.runner.experiment, evorun.runs.directory
number = signal.Signals(int(sys.argv[1]))
# the tests may run in the background, or under nohup
for one in (number, signal.SIGINT):
    signal.signal(one, signal.SIG_DFL if one is not signal.SIGINT else signal.default_int_handler)

def stopped(of, name):
    usual = getattr(of, name)
    def sends(*args, **options):
        setattr(of, name, usual)
        os.kill(os.getpid(), number)
        return usual(*args, **options)
    setattr(of, name, sends)

PLACE
from evorun.cli import main
main(sys.argv[2:])
"""
BETWEEN_JOBS = """
first = evorun.cli.running.carry_out
def carries_out(*args, **options):
    evorun.cli.running.carry_out = first
    stopped(evorun.cli.running, 'carry_out')
    return first(*args, **options)
evorun.cli.running.carry_out = carries_out
"""
REPORT = "stopped(evorun.reports.html, 'write_report')"
BEGINNING = "stopped(evorun.runner.experiment, 'crowded_gpus')"
END = "stopped(evorun.runs.directory.RunDirectory, 'end')"
TINY = ("method=zero_shot", "task=mathbench", "task.source=sample", "task.limit=1", "engine=simulated")


def stopped_at(place: str, number: signal.Signals, *arguments: str, cwd: Path) -> str:
    """Run `evorun`, which a signal stops at a place of the program; return what it printed."""
    script = cwd / "sending.py"
    script.write_text(SENDING.replace("PLACE", place))
    done = evorun(str(int(number)), *arguments, cwd=cwd, program=str(script))
    assert done.returncode == 130, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def statuses(folder: Path) -> list[str]:
    return [json.loads(manifest.read_text())["status"] for manifest in sorted(folder.glob("*/manifest.json"))]


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(rare, marks=pytest.mark.nightly) for rare in (signal.SIGHUP, signal.SIGUSR1))],
)
def test_between_the_jobs_of_a_sweep(number: signal.Signals, tmp_path: Path) -> None:
    sweep = ("-m", *TINY, "seed=0,1,2", "hydra.sweep.dir=sweep")
    said = stopped_at(BETWEEN_JOBS, number, *sweep, cwd=tmp_path)
    assert statuses(tmp_path / "sweep") == ["completed"]
    assert "2 of 3 jobs are not done; continue with: evorun resume sweep\n" in said


@pytest.mark.nightly  # test_cli_sweeps.py has such an interrupt, in one process
def test_while_the_report_is_drawn(tmp_path: Path) -> None:
    said = stopped_at(REPORT, signal.SIGHUP, *TINY, "hydra.run.dir=runs/run", cwd=tmp_path)
    assert statuses(tmp_path / "runs") == ["completed"]
    assert "interrupted; the run is complete, its report is not: evorun report runs/run" in said


@pytest.mark.nightly  # likewise
def test_before_the_first_call(tmp_path: Path) -> None:
    said = stopped_at(BEGINNING, signal.SIGTERM, *TINY, "hydra.run.dir=runs/run", cwd=tmp_path)
    assert statuses(tmp_path / "runs") == ["interrupted"]
    assert "interrupted; continue with: evorun resume runs/run" in said


def test_before_the_manifest_says_how_a_run_ended(tmp_path: Path) -> None:
    said = stopped_at(END, signal.SIGUSR1, *TINY, "hydra.run.dir=runs/run", cwd=tmp_path)
    assert statuses(tmp_path / "runs") == ["completed"]
    assert "evorun report runs/run" in said

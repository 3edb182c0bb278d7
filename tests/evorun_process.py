"""Runs the real program as a user would: in a process of its own, or, at a tenth of the cost, in this one."""

import contextlib
import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from evorun.cli import main, naming, output

DRY_RUN = ("method=duel_evolve", "task=mathbench", "task.source=sample", "engine=simulated")
"""A run without weights, on evorun's own sample problems."""

SMALL = ("task.limit=3", "method.generations=2", "method.children=4", "method.initial_candidates=4", "method.duels=4")
"""A small size for it."""

RECORDS = (
    "problems.jsonl",
    "predictions.jsonl",
    "steps.jsonl",
    "comparisons.jsonl",
    "candidates.jsonl",
    "metrics.jsonl",
)


def environment() -> dict[str, str]:
    """Return this process's environment with one thread for linear algebra, no data folder, and what tests import."""
    kept = {key: value for key, value in os.environ.items() if key != "EVORUN_DATA"}
    paths = [*filter(None, [kept.get("PYTHONPATH")]), str(Path(__file__).parent)]
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(paths)}


def evorun(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `evorun` with the arguments to its end and return what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "evorun", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,  # of a run that hangs: a busy machine takes minutes for a sweep
        **{"env": environment(), **options},
    )


def evorun_here(*arguments: str | Path, cwd: Path, drawn: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `evorun` in this process, for what does not depend on starting, ending or the streams of one.

    drawn: with figures on its pages. Drawing takes longer than a small run; those of tests/reports are.
    """
    words = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    naming.free_folder.cache_clear()
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, environment(), clear=True),
        mock.patch.object(sys, "argv", ["evorun", *words]),
        contextlib.nullcontext() if drawn else mock.patch("evorun.reports.drawing._save", _leave_blank),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            logging.getLogger("evorun").removeHandler(output._WARNINGS)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _leave_blank(figure: object, buffer: Any, format: str, *_: object) -> None:
    """Write an empty figure."""
    buffer.write('<svg viewBox="0 0 1 1"></svg>' if format == "svg" else b"%PDF-1.7")


def reopen(run: Path) -> None:
    """Make a finished run's folder one that was interrupted: a finished one is not carried out again."""
    manifest = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(manifest.replace('"status": "completed"', '"status": "interrupted"'))


def start(*arguments: str | Path, cwd: Path, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start `evorun` with the arguments, its output thrown away unless `stdout` is a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "evorun", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=stdout,
        stderr=subprocess.DEVNULL,
    )


def records(run: Path) -> dict[str, bytes]:
    """Return the bytes of all record files of a run directory."""
    return {name: (run / name).read_bytes() for name in RECORDS}

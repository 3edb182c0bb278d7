"""Runs the real program as a user would: in a process of its own or, for less, in a fork or in this process."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import warm_process
from evorun.cli import main, naming, output

DRY_RUN = ("method=duel_evolve", "task=mathbench", "task.source=sample", "engine=simulated")
"""A run without weights, on evorun's own sample problems."""

SMALL = ("task.limit=3", "method.generations=2", "method.children=4", "method.initial_candidates=4", "method.duels=4")
"""A small size for it."""

EVORUN = "evorun"

LIMIT_S = 600
"""Of a process that hangs: a busy machine takes minutes for a sweep."""

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


def evorun(
    *arguments: str | Path, cwd: Path, program: str = EVORUN, drawn: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `evorun` with the arguments to its end and return what it printed.

    program: a script to run in its place. drawn: with figures on its pages. options: of `subprocess.run`. A fork
    (`warm_process.py`) does for a text as `input`, descriptors as `stdout` and `stderr`, and an environment that
    differs in `IN_FORKS` alone; for all else it is an interpreter of its own.
    """
    words = [str(argument) for argument in arguments]
    given = options.get("env", environment())
    if warm_process.is_there() and not options.keys() - {"env", "input", "stdout", "stderr"} and _is_usual(given):
        with tempfile.TemporaryFile() as taken, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            taken.write(options.get("input", "").encode())
            taken.seek(0)
            streams = (taken.fileno(), options.get("stdout", out.fileno()), options.get("stderr", err.fileno()))
            process = _forked(program, words, cwd, streams, env=given, drawn=drawn)
            try:
                code = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # a fork has a session of its own
                raise
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *said)
    captured = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        _command(program, words),
        cwd=cwd,
        text=True,
        timeout=LIMIT_S,
        **{"env": environment(), **captured, **options},
    )


IN_FORKS = ("PYTHONPATH", "PYTHONIOENCODING", "PYTEST_CURRENT_TEST")
"""Variables that a fork heeds as an interpreter of its own would, or that nothing but pytest does."""


def _is_usual(given: dict[str, str]) -> bool:
    return all(given.get(name) == value for name, value in environment().items() if name not in IN_FORKS) and not (
        given.keys() - environment().keys() - {*IN_FORKS}
    )


def _command(program: str, words: list[str]) -> list[str]:
    return [sys.executable, *(["-m", EVORUN] if program == EVORUN else [program]), *words]


def _forked(
    program: str,
    words: list[str],
    cwd: Path,
    streams: tuple[int, int, int],
    reading: Any = None,
    env: dict[str, str] | None = None,
    drawn: bool = False,
) -> warm_process.Forked:
    process = warm_process.fork(program, words, env or environment(), str(cwd), streams, drawn=drawn)
    return warm_process.Forked(*process, reading)


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
        contextlib.nullcontext() if drawn else warm_process.no_figures(),
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


def reopen(run: Path) -> None:
    """Make a finished run's folder one that was interrupted: a finished one is not carried out again."""
    manifest = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(manifest.replace('"status": "completed"', '"status": "interrupted"'))


def start(*arguments: str | Path, cwd: Path, program: str = EVORUN, stdout: int | Any = subprocess.DEVNULL) -> Any:
    """Start `evorun` with the arguments and return the process.

    program: a script to run in its place. stdout: where its output goes, thrown away unless it is a pipe; or an open
    file, for stderr too.
    """
    words = [str(argument) for argument in arguments]
    stderr = subprocess.DEVNULL if isinstance(stdout, int) else subprocess.STDOUT
    if not warm_process.is_there():
        return subprocess.Popen(_command(program, words), cwd=cwd, env=environment(), stdout=stdout, stderr=stderr)
    with open(os.devnull, "r+b") as file:
        nothing = file.fileno()
        if stdout == subprocess.DEVNULL:
            return _forked(program, words, cwd, (nothing, nothing, nothing))
        if stdout != subprocess.PIPE:
            return _forked(program, words, cwd, (nothing, stdout.fileno(), stdout.fileno()))
        read, write = os.pipe()
        try:
            return _forked(program, words, cwd, (nothing, write, nothing), os.fdopen(read, "rb"))
        finally:
            os.close(write)


def start_on_terminal(*arguments: str | Path, cwd: Path, end: int) -> Any:
    """Start `evorun` with the end of a terminal as its three streams, and return the process."""
    words = [str(argument) for argument in arguments]
    if warm_process.is_there():
        return _forked(EVORUN, words, cwd, (end, end, end))
    return subprocess.Popen(_command(EVORUN, words), cwd=cwd, env=environment(), stdin=end, stdout=end, stderr=end)


def records(run: Path) -> dict[str, bytes]:
    """Return the bytes of all record files of a run directory."""
    return {name: (run / name).read_bytes() for name in RECORDS}

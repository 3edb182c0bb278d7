"""Standard output that is closed, full or ASCII only: runs go on, verbs say so in a line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evorun_process import DRY_RUN, SMALL, environment, evorun


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def full() -> Iterator[int]:
    """A device without room."""
    device = os.open("/dev/full", os.O_WRONLY)
    yield device
    os.close(device)


def status(run: Path) -> str:
    return str(json.loads((run / "manifest.json").read_text())["status"])


def test_a_run_outlives_the_reader_of_its_output(tmp_path: Path, closed_pipe: int) -> None:
    done = evorun(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path, stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (0, "")
    assert status(tmp_path / "run") == "completed"
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_outlives_a_full_output(tmp_path: Path, full: int) -> None:
    done = evorun(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path, stdout=full)
    assert status(tmp_path / "run") == "completed"
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path, closed_pipe: int) -> None:
    done = evorun("list", "engines", cwd=tmp_path, stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_output_is_one_line(tmp_path: Path, full: int) -> None:
    done = evorun("--help", cwd=tmp_path, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.nightly
def test_an_error_whose_reader_has_left_stops_no_sweep(tmp_path: Path, closed_pipe: int) -> None:
    sweep = ("-m", *DRY_RUN, *SMALL, "method.duels=-1,2", "hydra.sweep.dir=sweep")
    done = evorun(*sweep, cwd=tmp_path, stdout=closed_pipe, stderr=closed_pipe)
    assert done.returncode == 1
    assert len(list((tmp_path / "sweep").glob("*/results.json"))) == 1


@pytest.mark.nightly
def test_an_ascii_terminal(tmp_path: Path) -> None:
    # strict like a user's terminal in another locale; Python itself is lenient in the locale "C" alone
    ascii_only = {**environment(), "PYTHONIOENCODING": "ascii:strict"}
    done = evorun(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path, env=ascii_only)  # has lines of tables
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    problem = "\N{SNOWMAN}=1"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = evorun(problem, cwd=tmp_path, env={**ascii_only, **locale}).stderr
    assert line.startswith("error: ")
    assert "Traceback" not in line


def test_an_interrupt_in_the_first_moment(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        # a shell's background job inherits SIGINT ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'evorun.cli.verbs': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from evorun.cli import main\n"
        "main(['list'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")

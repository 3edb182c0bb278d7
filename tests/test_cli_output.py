"""Standard output that is closed, full or ASCII only: runs go on, verbs say so in a line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evorun_process import DRY_RUN, SMALL, environment, evorun


def into(output: int, *arguments: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run evorun with its standard output going to the file descriptor."""
    return subprocess.run(
        [sys.executable, "-m", "evorun", *arguments],
        cwd=cwd,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env={**environment(), **extra},
    )


@pytest.fixture
def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.fixture
def full() -> int:
    """A device without room."""
    return os.open("/dev/full", os.O_WRONLY)


def status(run: Path) -> str:
    return str(json.loads((run / "manifest.json").read_text())["status"])


def test_a_run_outlives_the_reader_of_its_output(tmp_path: Path, closed_pipe: int) -> None:
    done = into(closed_pipe, *DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert status(tmp_path / "run") == "completed"
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_outlives_a_full_output(tmp_path: Path, full: int) -> None:
    done = into(full, *DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=tmp_path)
    assert status(tmp_path / "run") == "completed"
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path, closed_pipe: int) -> None:
    done = into(closed_pipe, "list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_output_is_one_line(tmp_path: Path, full: int) -> None:
    done = into(full, "--help", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


def test_an_error_whose_reader_has_left_stops_no_sweep(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "evorun", "-m", *DRY_RUN, *SMALL, "method.duels=-1,2", "hydra.sweep.dir=sweep"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=writing, timeout=120, env=environment())
    assert done.returncode == 1
    assert len(list((tmp_path / "sweep").glob("*/results.json"))) == 1


def test_an_ascii_terminal(tmp_path: Path) -> None:
    ascii_only = {**environment(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    # strict like a user's terminal in another locale; Python itself is lenient in the locale "C" alone
    done = evorun("list", cwd=tmp_path, env={**ascii_only, "PYTHONIOENCODING": "ascii:strict"})
    assert done.returncode == 0, done.stderr
    problem = "\N{SNOWMAN}=1"
    line = evorun(problem, cwd=tmp_path, env={**ascii_only, "PYTHONIOENCODING": "ascii:strict"}).stderr
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

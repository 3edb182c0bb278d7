"""scripts/bench/run.py: a table of each benchmark; a missed target is a number, not a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "scripts" / "bench" / "run.py"

FAST = """
from evorun_bench import Row

TINY = {}

def measure():
    return [Row("calls [a]", 12345.6, "calls/s", ">= 2000", True), Row("share", 0.01234, "", "<= 0.001", False)]
"""
SIZED = """
import evorun
from evorun_bench import Row

TINY = {"problems": 2}

def measure(problems=150):
    rate = getattr(evorun, "CALLS", 50)
    return [Row(f"{problems} problems", rate, "", "", None), Row("none", 0, "", "", None)]
"""
BROKEN = """
TINY = {}

def measure():
    raise RuntimeError("no [such] server")
"""
WAITING = """
import sys
import time
from pathlib import Path

TINY = {}

def measure():
    while not Path(sys.argv[1], "printed").exists():
        time.sleep(0.01)
    return []
"""
HELPER = "def helper():\n    raise AssertionError('not a benchmark')\n"


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUNNER), "--folder", str(folder), *arguments]
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fast.py").write_text(FAST)
    (tmp_path / "helper.py").write_text(HELPER)
    return tmp_path


def cells(printed: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]


NUMBERS = [["fast", "calls [a], calls/s", "12,346", ">= 2000", "yes"], ["", "share", "0.0123", "<= 0.001", "no"]]


@pytest.mark.nightly
def test_prints_what_is_named_beside_its_target_which_may_be_missed(folder: Path) -> None:
    (folder / "broken.py").write_text(BROKEN)
    done = bench(folder, "fast")
    assert done.returncode == 0, done.stderr
    assert cells(done.stdout) == NUMBERS


def test_a_benchmark_that_raises_is_shown_and_the_others_still_run(folder: Path) -> None:
    (folder / "broken.py").write_text(BROKEN)
    done = bench(folder)
    assert done.returncode == 1
    assert "no [such] server" in done.stdout
    assert cells(done.stdout)[-2:] == NUMBERS


@pytest.mark.nightly
def test_each_table_is_printed_before_the_next_benchmark_ends(folder: Path) -> None:
    (folder / "waiting.py").write_text(WAITING)
    command = [sys.executable, str(RUNNER), "--folder", str(folder), "fast", "waiting"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        printed = ""
        try:
            for line in running.stdout:
                printed += line
                if "fast:" in line:
                    break
            assert cells(printed) == NUMBERS
            assert running.poll() is None
        finally:
            (folder / "printed").touch()
        running.stdout.read()
    assert running.returncode == 0


def test_an_unknown_name_lists_the_known_ones(folder: Path) -> None:
    done = bench(folder, "fats")
    assert done.returncode == 2
    assert "unknown benchmark fats; choose from fast" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "size"),
    [((), 150), (("--tiny",), 2), (("--size", "problems=7"), 7), (("--tiny", "--size", "problems=7"), 7)],
)
def test_a_size_is_chosen(folder: Path, words: tuple[str, ...], size: int) -> None:
    (folder / "sized.py").write_text(SIZED)
    assert cells(bench(folder, "sized", *words).stdout)[0][1] == f"{size} problems"


@pytest.mark.nightly
def test_another_checkout_is_measured_in_turns(folder: Path) -> None:
    (folder / "sized.py").write_text(SIZED)
    before = folder / "before" / "evorun"
    before.mkdir(parents=True)
    # another figure each time, as a machine gives them: 40, 10, 40
    (before / "__init__.py").write_text(
        "from pathlib import Path\n"
        "turns = Path(__file__).with_name('turns')\n"
        "turns.write_text(turns.read_text() + 'x' if turns.exists() else 'x')\n"
        "CALLS = 10 if len(turns.read_text()) == 2 else 40\n"
    )
    done = bench(folder, "sized", "--against", str(before.parent))
    assert done.returncode == 0, done.stderr
    assert cells(done.stdout) == [
        ["sized", "150 problems", "40", "50", "1.25", "", ""],
        ["", "none", "0", "0", "", "", ""],
    ]
    assert (before / "turns").read_text() == "xxx"


def test_what_is_no_checkout_is_refused(folder: Path) -> None:
    done = bench(folder, "fast", "--against", str(folder))
    assert done.returncode == 2
    assert "expected a checkout of evorun" in done.stderr

"""scripts/bench/run.py: one table of all benchmarks; a missed target is a number, not a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "scripts" / "bench" / "run.py"

FAST = """
from evorun_bench import Row

def measure():
    return [Row("calls [a]", 12345.6, "calls/s", ">= 2000", True), Row("share", 0.01234, "", "<= 0.001", False)]
"""
BROKEN = """
def measure():
    raise RuntimeError("no [such] server")
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


NUMBERS = [["fast", "calls [a]", "12,346 calls/s", ">= 2000", "yes"], ["", "share", "0.0123", "<= 0.001", "no"]]


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


def test_an_unknown_name_lists_the_known_ones(folder: Path) -> None:
    done = bench(folder, "fats")
    assert done.returncode == 2
    assert "unknown benchmark fats; choose from fast" in done.stderr

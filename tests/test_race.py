"""The race's own measurement, by evorun alone: its peers stand in an environment that the tests do not make."""

import subprocess
import sys
from pathlib import Path

import pytest

RACE = Path(__file__).parents[1] / "scripts" / "race" / "race.py"


@pytest.mark.nightly
def test_evorun_pays_for_no_call_twice_after_a_sigkill() -> None:
    words = [sys.executable, str(RACE), "--peers", sys.executable, "--only", "evorun", "--calls", "400"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    name, calls, *_, lost = done.stdout.split("\n")[-3].replace("│", " ").split()
    assert (name, calls) == ("evorun", "400")
    # What was in flight when it was killed had been answered to nobody: at most 64 calls at once.
    assert 0 <= int(lost) <= 64

"""The race's own measurement, by evorun alone: its peers stand in an environment that the tests do not make."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evorun_process import evorun_here
from journals import effects_in

RACE = Path(__file__).parents[1] / "scripts" / "race"


@pytest.mark.nightly
def test_a_race_of_evorun_alone_prints_its_row() -> None:
    words = [sys.executable, str(RACE / "race.py"), "--peers", sys.executable, "--only", "evorun", "--calls", "400"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    name, calls, *_, lost = done.stdout.split("\n")[-3].replace("│", " ").split()
    assert (name, calls) == ("evorun", "400")
    # A run that began anew after its kill would pay again for the half that it had.
    assert 0 <= int(lost) < 200


@pytest.mark.nightly
def test_evorun_pays_for_no_recorded_call_again_after_a_sigkill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(RACE))
    race = importlib.import_module("race")
    run, journal = tmp_path / "run", tmp_path / "run" / "journal.sqlite"
    with race.endpoint() as url:
        process = race.start(race.racers(url, 400, run, Path())["evorun"].start, tmp_path)
        while race.count_answered(url) < 200:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    recorded = effects_in(journal)
    assert 0 < recorded < 400
    # An endpoint of its own: the first one may still answer what the killed run had sent.
    with race.endpoint() as url:
        resumed = evorun_here("resume", run, f"engine.base_urls=[{url}/v1]", cwd=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
        assert race.count_answered(url) == 400 - recorded
    assert effects_in(journal) == 400

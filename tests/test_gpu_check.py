"""The check of a GPU: its parts on a CPU at tiny sizes, and its account of parts that fail."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

CHECK = Path(__file__).parents[1] / "scripts" / "gpu" / "gpu_check.py"


def check(out: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Carry out parts on the CPU; return the process and what it wrote."""
    command = [sys.executable, str(CHECK), "--device", "cpu", "--size", "tiny", "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    file = out / "gpu_check.json"
    return done, json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.slow
# Each call takes seconds to import what it checks: the second one is left to the night.
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["once", "again"])
def test_a_part_that_is_cut_off_is_reported_and_the_next_call_keeps_it(again: bool, tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "decoding", "--minutes", "0.001")
    assert done.returncode == 1
    assert found["parts"]["decoding"]["problem"] == "cut off after 0.001 minutes"
    assert "| decoding | **cut off after 0.001 minutes** |" in (tmp_path / "gpu_check.md").read_text()
    if again and importlib.util.find_spec("vllm") is None:
        done, found = check(tmp_path, "--parts", "vllm")  # keeps the other part's figures
        assert done.returncode == 0, done.stderr
        assert [figure["value"] for figure in found["parts"]["vllm"]["figures"]] == ["not installed"]
        assert set(found["parts"]) == {"decoding", "vllm"}
        assert found["machine"]["packages"]["torch"] in done.stdout


@pytest.mark.nightly
def test_the_engine_is_as_near_to_float32_as_a_plain_pass(tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "decoding", "--minutes", "20")
    assert done.returncode == 0, done.stderr
    figures = found["parts"]["decoding"]["figures"]
    assert not [figure for figure in figures if str(figure["value"]).startswith("failed")]
    distances = [figure for figure in figures if figure["what"].endswith("mean")]
    assert len(distances) == 2
    for figure in distances:
        assert figure["value"] < 1.5 * float(figure["beside"].split()[0])


@pytest.mark.nightly
def test_every_way_to_train_and_each_method_is_tried(tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "training", "runs", "resume", "sharing", "--minutes", "40")
    assert done.returncode == 0, (done.stderr, found)
    figures = [figure for part in found["parts"].values() for figure in part["figures"]]
    assert not [figure for figure in figures if str(figure["value"]).startswith("failed")]
    equal = [figure["value"] for figure in figures if figure["what"].endswith("equal")]
    assert equal == [True, True]  # CPUs repeat themselves exactly
    [same] = [figure["value"] for figure in figures if figure["what"].endswith("that of one that stays")]
    assert same is True


@pytest.mark.nightly
def test_a_check_that_is_stopped_ends_its_part(tmp_path: Path) -> None:
    command = [sys.executable, str(CHECK), "--device", "cpu", "--size", "tiny", "--out", str(tmp_path)]
    process = subprocess.Popen([*command, "--parts", "decoding"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        parts: list[psutil.Process] = []
        while not parts and process.poll() is None:
            children = psutil.Process(process.pid).children()
            parts = [child for child in children if "--inside" in child.cmdline()]
            time.sleep(0.05)
        process.terminate()
        assert process.wait() == 143
    finally:
        process.kill()
    _, alive = psutil.wait_procs(parts, timeout=60)
    assert parts
    assert not alive

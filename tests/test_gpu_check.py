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

from evorun_process import evorun

CHECK = Path(__file__).parents[1] / "scripts" / "gpu" / "gpu_check.py"


def check(out: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Carry out parts on the CPU; return the process and what it wrote."""
    words = ("--device", "cpu", "--size", "tiny", "--out", str(out), *words)
    done = evorun(*words, cwd=out, program=str(CHECK))
    file = out / "gpu_check.json"
    return done, json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.slow
# Each call takes seconds to import what it checks: the second one is left to the night.
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["once", "again"])
def test_a_part_that_is_cut_off_is_reported_and_the_next_call_keeps_it(again: bool, tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "training-ppo", "decoding", "--minutes", "0.001", "--total", "0.0005")
    assert done.returncode == 1
    assert found["parts"]["training-ppo"]["problem"] == "cut off after 0.0005 minutes"
    assert "| training-ppo | **cut off after 0.0005 minutes** |" in (tmp_path / "gpu_check.md").read_text()
    assert [line for line in done.stdout.splitlines() if line.endswith("no time left")] == [
        "== decoding-dense: no time left",
        "== decoding-moe: no time left",
    ]
    if again and importlib.util.find_spec("vllm") is None:
        done, found = check(tmp_path, "--parts", "vllm", "memory")  # keeps the other part's figures
        assert done.returncode == 0, done.stderr
        assert [figure["value"] for figure in found["parts"]["vllm-dense"]["figures"]] == ["not installed"]
        assert set(found["parts"]) == {"training-ppo", "vllm-dense", "vllm-moe", "memory"}
        assert found["machine"]["packages"]["torch"] in done.stdout


@pytest.mark.nightly
def test_a_part_that_is_unknown_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "train")
    assert done.returncode == 2
    assert "--parts train: expected some of decoding-dense, " in done.stderr
    assert not found


@pytest.mark.slow
@pytest.mark.nightly
def test_the_engine_is_as_near_to_float32_as_a_plain_pass(tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", "decoding", "--minutes", "20")
    assert done.returncode == 0, done.stderr
    figures = [figure for part in ("dense", "moe") for figure in found["parts"][f"decoding-{part}"]["figures"]]
    assert not [figure for figure in figures if str(figure["value"]).startswith("failed")]
    distances = [figure for figure in figures if figure["what"].endswith("mean")]
    assert len(distances) == 2
    for figure in distances:
        assert figure["value"] < 1.5 * float(figure["beside"].split()[0])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("group", "parts"), [("training", 5), ("runs", 8), ("resume", 1), ("sharing", 3), ("memory", 1), ("transfer", 4)]
)
def test_every_way_to_train_and_each_method_is_tried(group: str, parts: int, tmp_path: Path) -> None:
    done, found = check(tmp_path, "--parts", group, "--minutes", "40")
    assert done.returncode == 0, (done.stderr, found)
    assert len(found["parts"]) == parts
    figures = [figure for part in found["parts"].values() for figure in part["figures"]]
    assert figures
    assert not [figure for figure in figures if str(figure["value"]).startswith("failed")]
    # CPUs repeat themselves exactly
    same = [figure["value"] for figure in figures if figure["what"].endswith(("equal", "that of one that stays"))]
    assert same == [True] * {"resume": 2, "sharing": 1}.get(group, 0)


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

"""A run of a student in processes of its own: killed in each stage, it leaves what an undisturbed one leaves."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evorun.models.embedded import is_ready
from evorun_process import RECORDS, environment
from journals import effects_in
from tiny_llama import write_tiny_llama

SETTINGS = (
    *("experiment=laft/tiny", "model=local", "model.context_length=2048", "task.training_instances=2"),
    *("method.max_tokens=8", "method.population=2", "method.generations=1", "budget.calls_per_problem=6"),
    *("student.teaching.population=4", "student.teaching.generations=1", "teacher_engine.seconds_per_token=0.01"),
    *(
        "student.tuning.limit=6",
        "student.tuning.batch=1",
        "student.tuning.eval_max_tokens=8",
        "training.rank=2",
        "student.tuning.epochs=1",
    ),
    *("training.dropout=0.2", "training.learning_rate=0.01", "training.save_every=2"),
)
STAGES = ("teacher", "traces", "student")
MIDDLE = {"teacher": 1, "student": 1 + 2 + 3, "run": 1}
"""Effects after which each is in the middle of its work; the student's: an assessment, two answers, three steps."""

LIMIT_S = 300.0
"""Of one process; some seconds where nothing else is at work."""

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(not is_ready(), reason="no embedded model"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


def start(folder: Path, model: Path) -> "subprocess.Popen[bytes]":
    """Start the run, or go on with it, as a user would."""
    begun = (folder / "run" / "manifest.json").exists()
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "evorun"),
            *(("resume", "run") if begun else (*SETTINGS, f"model.id={model}", "hydra.run.dir=run")),
        ],
        cwd=folder,
        env=environment(),
        stdout=(folder / "said").open("ab"),
        stderr=subprocess.STDOUT,
    )


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def folder_of(folder: Path, name: str) -> Path | None:
    if name == "run":
        return folder / "run"
    return next(iter((folder / "outputs" / "stages").glob(f"{name}_*")), None)


def at_work(folder: Path, name: str) -> bool:
    """Return whether the stage, or `run` itself, is in the middle of its work."""
    at = folder_of(folder, name)
    if at is None:
        return False
    return effects_in(at / "journal.sqlite") >= MIDDLE[name]


def kill_in(folder: Path, model: Path, name: str) -> None:
    process = start(folder, model)
    deadline = time.monotonic() + LIMIT_S
    try:
        while not at_work(folder, name):
            assert process.poll() is None, said(folder)
            assert time.monotonic() < deadline, said(folder)
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()


def manifest(folder: Path, name: str) -> Any:
    at = folder_of(folder, name)
    assert at is not None, name
    return json.loads((at / "manifest.json").read_text())


def left(folder: Path) -> dict[str, bytes]:
    """Return what the stages and the run left, to the byte."""
    files = {
        "teacher": RECORDS,
        "traces": ("traces.jsonl",),
        "student": ("training.jsonl", "artifacts/adapter/adapter_model.safetensors"),
        "run": RECORDS,
    }
    found: dict[str, bytes] = {}
    for name, of in files.items():
        at = folder_of(folder, name)
        assert at is not None, name
        found |= {f"{name}/{file}": (at / file).read_bytes() for file in of}
    return found


def test_killed_in_each_stage_it_leaves_what_an_undisturbed_run_leaves(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny")
    whole = start(tmp_path / "whole", model)
    killed = tmp_path / "killed"
    for name in MIDDLE:  # traces are written at once, within milliseconds
        kill_in(killed, model, name)
        assert manifest(killed, "run")["status"] == "running"
        if name in ("teacher", "student"):
            assert manifest(killed, name)["status"] == "running"
    for folder, process in ((killed, start(killed, model)), (tmp_path / "whole", whole)):
        assert process.wait(timeout=LIMIT_S) == 0, said(folder)
        assert manifest(folder, "run")["status"] == "completed"
    assert len(list((killed / "outputs" / "stages").glob("[!.]*"))) == len(STAGES)  # each was gone on with
    for name in STAGES:
        assert f"stage {name}: reused" in said(killed)
    assert "stage teacher: continued" in said(killed)
    assert "stage student: continued" in said(killed)
    assert "continued" not in said(tmp_path / "whole")
    ours, theirs = left(killed), left(tmp_path / "whole")
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    assert manifest(killed, "run")["models"] == manifest(tmp_path / "whole", "run")["models"]

"""A run of a student in processes of its own: killed in each stage, it leaves what an undisturbed one leaves."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from evorun.models.embedded import is_ready
from evorun_process import RECORDS, evorun_here, start
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
    *("training.dropout=0.2", "training.learning_rate=0.01", "training.save_every=2", "training.schedule=cosine"),
)
STAGES = ("teacher", "traces", "student")
MIDDLE = {"teacher": 1, "student": 1 + 2 + 3, "run": 1}
"""Effects after which each is in the middle of its work; the student's: an assessment, two answers, three steps."""

RECORDS_OF_TUNING = ("training.jsonl", "steps.jsonl", "candidates.jsonl", "metrics.jsonl", "predictions.jsonl")

LIMIT_S = 300.0
"""Of one process; some seconds where nothing else is at work."""

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(not is_ready(), reason="no embedded model"),
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]


def words(folder: Path, model: Path) -> list[str]:
    """Return what starts the run, or goes on with it, as a user would."""
    if (folder / "run" / "manifest.json").exists():
        return ["resume", "run"]
    return [*SETTINGS, f"model.id={model}", "hydra.run.dir=run"]


def finish(folder: Path, model: Path) -> None:
    """Carry the run out to its end in this process, which has loaded torch already."""
    done = evorun_here(*words(folder, model), cwd=folder)
    with (folder / "said").open("a") as file:
        file.write(done.stdout + done.stderr)
    assert done.returncode == 0, said(folder)
    assert manifest(folder, "run")["status"] == "completed"


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def folder_of(folder: Path, name: str) -> Path | None:
    if name == "run":
        return folder / "run"
    return next(iter((folder / "outputs" / "stages").glob(f"{name}_*")), None)


def student(folder: Path) -> Path:
    found = folder_of(folder, "student")
    assert found is not None
    return found


def at_work(folder: Path, name: str) -> bool:
    """Return whether the stage, or `run` itself, is in the middle of its work."""
    at = folder_of(folder, name)
    if at is None:
        return False
    return effects_in(at / "journal.sqlite") >= MIDDLE[name]


def kill_in(folder: Path, model: Path, name: str) -> None:
    with (folder / "said").open("ab") as file:
        process = start(*words(folder, model), cwd=folder, stdout=file)
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
        "student": (*RECORDS_OF_TUNING, "artifacts/adapter/adapter_model.safetensors"),
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
    killed = tmp_path / "killed"
    for folder in (killed, tmp_path / "whole"):
        folder.mkdir()
    for name in MIDDLE:  # traces are written at once, within milliseconds
        kill_in(killed, model, name)
        assert manifest(killed, "run")["status"] == "running"
        if name in ("teacher", "student"):
            assert manifest(killed, name)["status"] == "running"
        if name == "student":
            assert list(student(killed).glob("checkpoints/update-*"))
    finish(killed, model)
    finish(tmp_path / "whole", model)
    assert len(list((killed / "outputs" / "stages").glob("[!.]*"))) == len(STAGES)  # each was gone on with
    for name in STAGES:
        assert f"stage {name}: reused" in said(killed)
    assert "stage teacher: continued" in said(killed)
    assert "stage student: continued" in said(killed)
    assert "continued" not in said(tmp_path / "whole")
    ours, theirs = left(killed), left(tmp_path / "whole")
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    assert "made again" not in (student(killed) / "evorun.log").read_text()
    assert manifest(killed, "run")["models"] == manifest(tmp_path / "whole", "run")["models"]

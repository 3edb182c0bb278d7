"""Record files that somebody else made: a report ends, in little memory and with one line that names the file."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evorun.errors import EvorunError
from evorun.reports.html import render_report
from evorun.runs.files import MAX_RECORD
from run_fixture import RunSpec, write_run

FILES = (
    "manifest.json",
    "results.json",
    "metrics.jsonl",
    "problems.jsonl",
    "predictions.jsonl",
    "steps.jsonl",
    "candidates.jsonl",
    "comparisons.jsonl",
    "rollouts.jsonl",
    "artifacts/transplant.json",
)


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    run = write_run(tmp_path / "run", RunSpec(problems=2))
    counts = dict.fromkeys(("step", "index", "prompt_tokens", "completion_tokens", "turns"), 1)
    texts = {"problem": "p", "call": "c", "finish_reason": "stop"}
    rest = dict.fromkeys(("candidate", "reward", "advantage", "correct"))
    (run / "rollouts.jsonl").write_text(json.dumps({**counts, **texts, **rest}) + "\n")
    (run / "artifacts").mkdir()
    (run / "artifacts" / "transplant.json").write_text('["cell"]')
    return run


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _endless_line(file: Path) -> None:
    with file.open("r+b") as target:
        target.truncate(MAX_RECORD * 8)  # sparse: one line of zeros


def _deep_unknown_field(file: Path) -> None:
    nested = b'{"unknown":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b","
    file.write_bytes(nested + file.read_bytes()[1:])


def _no_text(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"', b'"\xff', 1))


@pytest.mark.sample(10)  # files are read by the same functions, attacked here in turn
@pytest.mark.parametrize("attack", [_pipe, _device, _folder, _endless_line, _deep_unknown_field, _no_text])
@pytest.mark.parametrize("name", FILES)
def test_a_report_ends_with_the_files_name(run: Path, name: str, attack: Callable[[Path], None]) -> None:
    attack(run / name)
    tracemalloc.start()
    try:
        with pytest.raises(EvorunError) as told:
            render_report(run)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_RECORD
    assert name in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("name", "field"), [("manifest.json", "config"), ("problems.jsonl", "data")])
def test_values_of_any_type_are_not_deep(run: Path, name: str, field: str) -> None:
    first, *others = (run / name).read_text().splitlines() if name.endswith("l") else [(run / name).read_text()]
    deep: Any = 1
    for _ in range(200):
        deep = {"a": [deep]}
    (run / name).write_text("\n".join([json.dumps({**json.loads(first), field: deep}), *others, ""]))
    with pytest.raises(EvorunError, match=rf"{name}.*at most 32 levels"):
        render_report(run)

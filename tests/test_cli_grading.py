"""`evorun grade` on a task with scores: all of them for each response, and their means."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from evorun.runner.registry import TASKS
from evorun_process import evorun_here

SUDOKU = ("task=sudoku", "task.limit=3", "responses=r.jsonl")


@pytest.fixture(name="graded")
def _graded(tmp_path: Path) -> tuple[str, list[dict[str, Any]]]:
    run = ("method=zero_shot", "task=sudoku", "engine=simulated", "engine.skill=0.97", "task.limit=3")
    done = evorun_here(*run, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (tmp_path / "run" / "candidates.jsonl").read_text().splitlines()]
    responses = [{"id": c["problem"], "response": c["text"]} for c in written]
    responses[-1]["response"] = "I do not know."
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in responses))
    done = evorun_here("grade", *SUDOKU, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "r.graded.jsonl").read_text().splitlines()]
    for record, candidate in zip(records[:-1], written[:-1], strict=True):
        assert record["scores"] == candidate["scores"]
    return done.stdout, records


@pytest.mark.skipif("sudoku" not in TASKS, reason="needs a task with scores")
def test_scores_of_each_response_and_their_means(graded: tuple[str, list[dict[str, Any]]]) -> None:
    printed, records = graded
    rows = [" ".join(line.replace("│", " ").split()) for line in printed.splitlines()]
    assert records[-1]["scores"] == {"score": 0.0, "penalised_score": 0.0}
    for record in records:
        (row,) = [row for row in rows if row.startswith(f"{record['id']} ")]
        correct, *shown = row.split()[1:]
        assert correct == ("yes" if record["correct"] else "no")
        assert [float(value) for value in shown] == pytest.approx(list(record["scores"].values()), rel=1e-5)
    for name in ("score", "penalised_score"):
        (row,) = [row for row in rows if row.startswith(f"all {name} 3 ")]
        assert float(row.split()[3]) == pytest.approx(fmean(r["scores"][name] for r in records), rel=1e-3)

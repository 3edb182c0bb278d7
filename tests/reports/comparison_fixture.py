"""Writes small run directories whose outcomes a test chooses, problem by problem."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorun.runs.directory import load_manifest
from evorun.runs.results import write_results
from evorun.runs.schema import PredictionRecord, ProblemRecord, ReturnedCandidate, Spent, StepRecord
from run_fixture import RunSpec, write_run

STRATA = ("college", "high", "middle")
BENCHMARK = {"source": "benchmark", "description": "", "digest": "ab" * 32}


def write_method(
    run_dir: Path,
    correct: Sequence[bool] | Mapping[str, bool],
    *,
    method: str = "zero_shot",
    steps: int = 1,
    calls: Mapping[str, int] | None = None,
    ended: int | None = None,
    scores: Mapping[str, Sequence[float]] | None = None,
    declared: Sequence[Mapping[str, Any]] | None = None,
    **manifest: Any,
) -> Path:
    """Write a run without duels and beliefs; of `ended` problems only, and then without results.

    `correct` says how each problem ends, `calls` what a step of a problem costs by role: each call has 100 prompt and
    10 completion tokens, `scores` how each problem ends in each score, to which it rises from step to step, `declared`
    the task's scores in the manifest. Further arguments override the manifest.
    """
    by_problem = correct if isinstance(correct, Mapping) else {f"p{i}": right for i, right in enumerate(correct)}
    finished = ended is None
    given = {
        "method": method,
        "status": "completed" if finished else "interrupted",
        "provenance": BENCHMARK,
        "config": {"method": {"name": method, "generations": None}, "seed": manifest.get("seed", 0)},
        **({} if declared is None else {"scores": declared}),
        **manifest,
    }
    write_run(run_dir, RunSpec(problems=0, finished=False, manifest=given))
    records = [
        _records(
            i, *item, steps, calls or {"generate": 1}, {name: values[i] for name, values in (scores or {}).items()}
        )
        for i, item in enumerate(by_problem.items())
    ]
    _write(run_dir / "problems.jsonl", [problem for problem, _, _ in records])
    _write(run_dir / "steps.jsonl", [step for _, steps_of, _ in records[:ended] for step in steps_of])
    _write(run_dir / "predictions.jsonl", [prediction for _, _, prediction in records[:ended]])
    if finished:
        write_results(run_dir, load_manifest(run_dir).scores, {})
    return run_dir


def edit_manifest(run_dir: Path, **fields: Any) -> None:
    """Change fields of a written manifest."""
    path = run_dir / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def write_bred(run_dir: Path, kind: str = "response", call: str | None = "p0|1|generate|0|0") -> None:
    """Write a candidate that was made from another one: by a model where there is a call."""
    made = {"problem": "p0", "id": "1.0", "kind": kind, "generation": 1, "parents": ["0.0"], "call": call}
    (run_dir / "candidates.jsonl").write_text(json.dumps(made) + "\n")


def _records(
    index: int, problem: str, right: bool, steps: int, calls: Mapping[str, int], scores: Mapping[str, float]
) -> tuple[ProblemRecord, list[StepRecord], PredictionRecord]:
    stratum = STRATA[index % len(STRATA)]
    costs = [{role: Spent(n * i, 100 * n * i, 10 * n * i) for role, n in calls.items()} for i in range(1, steps + 1)]
    rows = [
        # right from a step on that differs from problem to problem, so that curves rise
        StepRecord(
            problem,
            stratum,
            i,
            ReturnedCandidate("c0", "A", ""),
            None,
            right and i >= index % steps,
            1,
            1,
            cost,
            {"texts": float(sum(calls.values()))},
            {name: value * (i + 1) / steps for name, value in scores.items()},
        )
        for i, cost in enumerate(costs)
    ]
    ending = PredictionRecord(
        problem, stratum, "c0", "A", right, dict(scores), None, 1, steps, "generations", costs[-1]
    )
    return ProblemRecord(problem, stratum, {}), rows, ending


def _write(path: Path, records: Sequence[msgspec.Struct]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

import json
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from evorun.runs.results import StepRecord, metric_series, proportion, write_results


def step(problem: str, number: int, correct: bool, calls: int, stratum: str = "high", **extra: float) -> dict[str, Any]:
    cost = {"generate": {"calls": calls, "prompt_tokens": 10 * calls, "completion_tokens": calls}}
    return {"problem": problem, "stratum": stratum, "step": number, "correct": correct, "cost": cost, "extra": extra}


def series(steps: list[dict[str, Any]]) -> dict[tuple[int, str], dict[str, Any]]:
    return {(row["step"], row["name"]): row for row in metric_series(StepRecord(**record) for record in steps)}


def test_accuracy_by_step_carries_early_finishers_forward() -> None:
    rows = series(
        [step("p", 0, True, 2), step("q", 0, False, 4), step("q", 1, True, 8, duels=3), step("q", 2, False, 9)]
    )
    assert [rows[k, "accuracy"]["value"] for k in range(3)] == [0.5, 1.0, 0.5]
    assert [rows[k, "accuracy"]["n"] for k in range(3)] == [2, 2, 2]
    assert [rows[k, "accuracy"]["calls"] for k in range(3)] == [3.0, 5.0, 5.5]
    assert rows[2, "accuracy"]["tokens"] == pytest.approx((22 + 99) / 2)
    assert rows[1, "duels"]["value"] == 3
    assert (0, "duels") not in rows


def test_strata_are_separate_series() -> None:
    rows = series([step("p", 0, True, 1, "middle"), step("q", 0, False, 1), step("r", 0, True, 1)])
    assert rows[0, "accuracy/middle"]["value"] == 1.0
    assert rows[0, "accuracy/high"]["value"] == 0.5


def test_proportion_against_scipy() -> None:
    share = proportion([True] * 7 + [False] * 5)
    interval = binomtest(7, 12).proportion_ci(method="wilson")
    assert share["ci95"] == pytest.approx([interval.low, interval.high])
    assert proportion([]) == {"value": None, "ci95": None, "n": 0}


def test_results_add_up(tmp_path: Path) -> None:
    def write(name: str, records: list[dict[str, Any]]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    write("steps.jsonl", [step("p", 0, False, 3, unparsable_texts=1), step("p", 1, True, 5), step("q", 0, True, 4)])
    write("predictions.jsonl", [
        {"problem": "p", "stratum": "high", "correct": True, "stop": "generations"},
        {"problem": "q", "stratum": "high", "correct": False, "stop": "budget"},
    ])  # fmt: skip
    write("candidates.jsonl", [{"error": None}, {"error": "no JSON"}])
    write("comparisons.jsonl", [
        {"verdicts": ["A", "B"], "outcome": "first"},
        {"verdicts": ["A", "invalid"], "outcome": None},
        {"verdicts": ["T", "A"], "outcome": None},
    ])  # fmt: skip
    write_results(tmp_path, {"generate": 1.23456})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["metrics"]["accuracy"]["value"] == 0.5
    assert results["metrics"]["decisive_rate"]["value"] == pytest.approx(1 / 3)
    assert results["metrics"]["position_a_rate"] == {**results["metrics"]["position_a_rate"], "value": 0.75, "n": 4}
    assert results["cost"]["generate"] == {
        "calls": 9, "prompt_tokens": 90, "completion_tokens": 9, "seconds": 1.235
    }  # fmt: skip
    assert results["cost"]["total"] == results["cost"]["generate"]
    assert results["counts"] == {
        "problems": 2, "stopped_by_budget": 1, "candidates": 2, "unparsed_candidates": 1, "unparsable_texts": 1,
        "comparisons": 3, "invalid_judgments": 1,
    }  # fmt: skip

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scipy.stats import binomtest

from evorun.models.base import Wasted
from evorun.runs.candidates import Outcome, Verdict
from evorun.runs.results import (
    cost_by_role,
    mean_over_problems,
    mean_score,
    metric_series,
    write_results,
)
from evorun.runs.schema import (
    CandidateRecord,
    ComparisonRecord,
    Metric,
    MetricPoint,
    PredictionRecord,
    Reached,
    Results,
    RoleCost,
    Spent,
    StepRecord,
    Stop,
    TrainingRecord,
)
from evorun.runs.scores import ACCURACY
from evorun.runs.statistics import Proportion, mean_interval


def step(problem: str, number: int, correct: bool, calls: int, stratum: str = "high", **extra: float) -> StepRecord:
    cost = {"generate": Spent(calls, 10 * calls, calls)}
    return StepRecord(problem, stratum, number, None, None, correct, 0, 0, cost, extra)


def prediction(problem: str, correct: bool, stop: Stop) -> PredictionRecord:
    return PredictionRecord(problem, "high", "0.0", "A", correct, {}, None, 1, 1, stop, {})


def candidate(error: str | None) -> CandidateRecord:
    return CandidateRecord(
        problem="p", id="0.0", generation=0, operator="init", text="", answer=None, error=error, correct=False
    )


def duel(first: Verdict, second: Verdict, outcome: Outcome | None) -> ComparisonRecord:
    return ComparisonRecord(
        problem="p", step=1, first="0.0", second="0.1", verdicts=(first, second), outcome=outcome, reasons=("", "")
    )


def series(steps: list[StepRecord]) -> dict[tuple[int, str], MetricPoint]:
    return {(point.step, point.name): point for point in metric_series(steps, [ACCURACY])}


def test_accuracy_by_step_carries_early_finishers_forward() -> None:
    points = series(
        [step("p", 0, True, 2), step("q", 0, False, 4), step("q", 1, True, 8, duels=3), step("q", 2, False, 9)]
    )
    assert [points[k, "accuracy"].value for k in range(3)] == [0.5, 1.0, 0.5]
    assert [points[k, "accuracy"].n for k in range(3)] == [2, 2, 2]
    assert [points[k, "accuracy"].calls for k in range(3)] == [3.0, 5.0, 5.5]
    assert points[2, "accuracy"].tokens == pytest.approx((22 + 99) / 2)
    assert points[1, "duels"].value == 3
    assert (0, "duels") not in points


def test_diagnostics_are_of_those_that_took_the_step() -> None:
    points = series([step("p", 0, True, 1, duels=4), step("q", 0, False, 1, duels=2), step("q", 1, False, 2, duels=6)])
    assert [(points[k, "duels"].value, points[k, "duels"].n) for k in range(2)] == [(3, 2), (6, 1)]


def test_strata_are_separate_series_with_their_own_cost() -> None:
    points = series([step("p", 0, True, 1, "middle"), step("q", 0, False, 2), step("r", 0, True, 4)])
    assert points[0, "accuracy/middle"].value == 1.0
    assert points[0, "accuracy/high"].value == 0.5
    assert [points[0, f"accuracy/{stratum}"].calls for stratum in ("middle", "high")] == [1.0, 3.0]
    assert points[0, "accuracy"].calls == pytest.approx(7 / 3)


def test_a_run_without_steps_has_no_series() -> None:
    assert metric_series([], [ACCURACY]) == []


def test_the_generation_reached_is_told_by_what_ended_the_problems(tmp_path: Path) -> None:
    write_records(tmp_path)
    steps = [step("p", 0, False, 1), step("q", 0, False, 1), step("r", 0, False, 1), step("s", 0, False, 1)]
    steps += [step("p", 3, True, 2), step("r", 4, False, 2), step("q", 7, False, 2)]  # as they came to be written
    ended = [prediction("p", True, "generations"), prediction("q", False, "budget"), prediction("r", False, "budget")]
    ended += [prediction("s", False, "budget"), prediction("none", False, "failed")]  # the last one took no step
    for name, records in (("steps", steps), ("predictions", ended)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    results = write_results(tmp_path, [ACCURACY], {}, planned_steps=15)
    assert results.planned_steps == 15
    assert results.reached == {"budget": Reached(3, 0, 11 / 3, 7), "generations": Reached(1, 3, 3.0, 3)}


def test_proportion_against_scipy() -> None:
    share = Proportion(7, 12).metric()
    interval = binomtest(7, 12).proportion_ci(method="wilson")
    assert share.ci95 == pytest.approx((interval.low, interval.high))
    assert Proportion().metric() == Metric(None, None, 0)


def test_the_cost_of_an_unfinished_run_has_no_seconds() -> None:
    cost = cost_by_role([step("p", 0, False, 3), step("p", 1, True, 5), step("q", 0, True, 4)], None)
    assert cost == {role: RoleCost(9, 90, 9, seconds=None) for role in ("generate", "total")}


def write_records(folder: Path) -> None:
    def write(name: str, records: Sequence[msgspec.Struct]) -> None:
        (folder / name).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

    write(
        "steps.jsonl",
        [step("p", 0, False, 3, texts=3, unparsable_texts=1), step("p", 1, True, 5), step("q", 0, True, 4)],
    )
    write("predictions.jsonl", [prediction("p", True, "generations"), prediction("q", False, "budget")])
    prompt = CandidateRecord(problem="*", id="0", kind="system_prompt", generation=0, operator="", text="", answer=None)
    write("candidates.jsonl", [candidate(None), candidate("no JSON"), prompt])
    write("comparisons.jsonl", [duel("A", "B", "first"), duel("A", "invalid", None), duel("T", "A", None)])


def test_results_add_up(tmp_path: Path) -> None:
    write_records(tmp_path)
    wasted = {"timed_out": Wasted(2, 400), "http_500": Wasted(3, 0)}
    returned = write_results(tmp_path, [ACCURACY], {"generate": 1.23456}, wasted)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["metrics"]["accuracy"]["value"] == 0.5
    assert results["metrics"]["decisive_rate"]["value"] == pytest.approx(1 / 3)
    assert results["metrics"]["position_a_rate"] == {**results["metrics"]["position_a_rate"], "value": 0.75, "n": 4}
    assert results["by_stratum"] == {"high": {"accuracy": results["metrics"]["accuracy"]}}
    assert results["cost"]["generate"] == {
        "calls": 9, "prompt_tokens": 90, "completion_tokens": 9, "seconds": 1.235
    }  # fmt: skip
    assert results["cost"]["total"] == results["cost"]["generate"]
    assert results["counts"] == {
        "problems": 2, "stopped_by_budget": 1, "texts": 3, "candidates": 2, "unparsed_candidates": 1,
        "unparsable_texts": 1, "comparisons": 3, "invalid_judgments": 1, "rejected_requests": 0, "truncated_texts": 0,
        "without_answer": 0,
    }  # fmt: skip
    assert results["wasted"] == {
        "http_500": {"attempts": 3, "tokens": 0}, "timed_out": {"attempts": 2, "tokens": 400}
    }  # fmt: skip
    assert msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results) == returned


def test_overlong_texts_are_counted_where_there_are_any(tmp_path: Path) -> None:
    write_records(tmp_path)
    assert "overlong_texts" not in write_results(tmp_path, [ACCURACY], {}).counts
    with (tmp_path / "steps.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(step("q", 1, True, 4, overlong_texts=2)) + b"\n")
    assert write_results(tmp_path, [ACCURACY], {}).counts["overlong_texts"] == 2


def test_metrics_are_written_a_point_a_line(tmp_path: Path) -> None:
    write_records(tmp_path)
    write_results(tmp_path, [ACCURACY], {})
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [row["name"] for row in rows if not row["name"].startswith("search/")] == [
        "accuracy", "accuracy/high", "texts", "unparsable_texts", "accuracy", "accuracy/high"
    ]  # fmt: skip
    assert list(rows[0]) == ["step", "name", "value", "ci95", "n", "calls", "tokens"]
    assert rows[3] == {**rows[3], "step": 0, "value": 1.0, "ci95": None, "n": 1}


def two_roles(problem: str, correct: bool | None, generate: int, judge: int) -> StepRecord:
    cost = {"generate": Spent(generate, 10 * generate, generate), "judge": Spent(judge, 20 * judge, judge)}
    return StepRecord(problem, "high", 0, None, None, correct, 0, 0, cost, {})


def test_mean_cost_is_a_problem_whatever_the_number_of_roles() -> None:
    steps = [two_roles("p", True, 3, 8), two_roles("q", False, 5, 4)]
    assert series(steps)[0, "accuracy"].calls == (11 + 9) / 2
    assert series(steps)[0, "accuracy"].tokens == (11 * 8 + 21 * 12) / 2
    cost = cost_by_role(steps, {"generate": 1.5, "judge": 2.0})
    assert cost == {
        "generate": RoleCost(8, 80, 8, seconds=1.5),
        "judge": RoleCost(12, 240, 12, seconds=2.0),
        "total": RoleCost(20, 320, 20, seconds=3.5),
    }


def test_a_problem_without_an_answer_yet_is_not_correct() -> None:
    point = series([two_roles("p", True, 1, 1), two_roles("q", None, 1, 1), two_roles("r", None, 1, 1)])[0, "accuracy"]
    assert (point.value, point.n) == (pytest.approx(1 / 3), 3)


def test_only_a_budget_stops_by_budget(tmp_path: Path) -> None:
    write_records(tmp_path)
    stops: list[Stop] = ["generations", "failed", "failed", "budget"]
    (tmp_path / "predictions.jsonl").write_bytes(
        b"".join(msgspec.json.encode(prediction(f"p{i}", False, stop)) + b"\n" for i, stop in enumerate(stops))
    )
    assert write_results(tmp_path, [ACCURACY], {}).counts["stopped_by_budget"] == 1


SCORED = {"p": ("high", {"score": 80.0, "missing": 0.0}), "q": ("high", {"score": 20.0, "missing": 3.0}),
          "r": ("low", {"score": 60.0, "missing": 1.0})}  # fmt: skip


def write_scored(folder: Path) -> Results:
    predictions = [
        msgspec.structs.replace(prediction(problem, False, "generations"), stratum=stratum, scores=scores)
        for problem, (stratum, scores) in SCORED.items()
    ]
    (folder / "predictions.jsonl").write_bytes(b"".join(msgspec.json.encode(p) + b"\n" for p in predictions))
    for name in ("steps", "candidates", "comparisons"):
        (folder / f"{name}.jsonl").touch()
    return write_results(folder, [ACCURACY], {})


def test_each_score_has_a_mean_overall_and_by_stratum(tmp_path: Path) -> None:
    results = write_scored(tmp_path)
    assert list(results.metrics) == ["accuracy", "score", "missing"]
    score = results.metrics["score"]
    assert (score.value, score.n) == (pytest.approx(160 / 3), 3)
    assert score.ci95 is not None
    assert 20 <= score.ci95[0] < 160 / 3 < score.ci95[1] <= 80
    assert results.metrics["missing"].value == pytest.approx(4 / 3)
    assert {s: {name: m.value for name, m in metrics.items()} for s, metrics in results.by_stratum.items()} == {
        "high": {"accuracy": 0.0, "score": 50.0, "missing": 1.5},
        "low": {"accuracy": 0.0, "score": 60.0, "missing": 1.0},
    }
    assert results.by_stratum["low"]["score"] == Metric(60.0, None, 1)
    assert msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results) == results


def scored_step(problem: str, number: int, calls: int, **scores: float) -> StepRecord:
    return msgspec.structs.replace(step(problem, number, False, calls, score=99), scores=scores)


def test_scores_by_step_carry_early_finishers_forward_and_hide_no_series() -> None:
    steps = [scored_step("p", 0, 2, score=50.0), scored_step("q", 0, 4, score=10.0), scored_step("q", 1, 8, score=30.0)]
    points = [
        point for point in metric_series(steps, [ACCURACY]) if point.name == "score"
    ]  # also the name of a diagnostic
    assert [(p.step, p.value, p.n, p.calls) for p in points] == [(0, 30.0, 2, 3.0), (1, 40.0, 2, 5.0)]
    assert points[0].ci95 is not None


def test_records_of_an_older_run_have_no_scores() -> None:
    old = msgspec.json.decode(msgspec.json.encode(step("p", 0, True, 1)))
    del old["scores"]
    assert msgspec.convert(old, StepRecord).scores == {}
    old = msgspec.json.decode(msgspec.json.encode(candidate(None)))
    for name in ("kind", "scores", "fitness", "errors", "call"):
        del old[name]
    record = msgspec.convert(old, CandidateRecord)
    assert (record.kind, record.scores, record.fitness, record.errors, record.call) == ("response", {}, None, "", None)


def test_the_interval_along_a_run_is_that_of_the_single_figure_to_what_a_band_shows_and_the_last_one_exactly() -> None:
    values = [float((37 * i) % 101) for i in range(60)]
    steps = [scored_step(f"p{i}", n, 1, score=value) for i, value in enumerate(values) for n in range(2)]
    early, last = [point for point in metric_series(steps, [ACCURACY]) if point.name == "score"]
    whole = mean_interval(values)
    assert whole is not None
    assert early.ci95 == pytest.approx(whole, abs=0.05 * (whole[1] - whole[0]))
    assert last.ci95 == whole


def test_evaluations_far_apart_are_points_of_their_own() -> None:
    steps = [step("a", 0, False, 1), step("a", 10, True, 5), step("b", 0, False, 1), step("b", 25, True, 5)]
    shares = {point.step: point.value for point in metric_series(steps, [ACCURACY]) if point.name == "accuracy"}
    assert shares == {0: 0.0, 10: 0.5, 25: 1.0}


def test_training_steps_are_series_beside_the_others(tmp_path: Path) -> None:
    write_records(tmp_path)
    lines = [TrainingRecord(number, 10 * number, 100 * number, {"reward": number / 4}) for number in (1, 2)]
    (tmp_path / "training.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    write_results(tmp_path, [ACCURACY], {})
    written = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    training = [
        (one["step"], one["value"], one["calls"], one["tokens"]) for one in written if "training/" in one["name"]
    ]
    assert training == [(1, 0.25, 10, 100), (2, 0.5, 20, 200)]
    assert {one["name"] for one in written} > {"training/reward", "accuracy"}


def test_problems_weigh_the_same_in_a_mean_over_their_responses() -> None:
    assert mean_over_problems(ACCURACY, [[1.0], [0.0], [None]]) == mean_score(ACCURACY, [1.0, 0.0])
    several = mean_over_problems(ACCURACY, [[1.0, 1.0, 0.0, 0.0], [1.0], [None, None]])
    assert (several.value, several.n) == (0.75, 2)
    assert several.ci95 == mean_interval([0.5, 1.0])

"""The figures of one run, from its files; what an unfinished run has not written yet is counted from its records."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evorun.reports.judge import JudgeDiagnostics, Proportion
from evorun.reports.records import (
    CandidateId,
    CandidateKey,
    DuelKey,
    Manifest,
    Metric,
    MetricPoint,
    Prediction,
    Results,
    RoleCost,
    StepRecord,
)
from evorun.reports.run_data import lines, read_manifest, read_metrics, read_predictions, read_results, read_steps

ACCURACY = "accuracy"


@dataclass(frozen=True)
class Outcome:
    """What a run has reached: the same for a terminal table, a page, and a comparison of runs."""

    run_dir: Path
    manifest: Manifest
    metrics: dict[str, Metric]
    by_stratum: dict[str, dict[str, Metric]]
    cost: dict[str, RoleCost]
    """By role; the sum is under `total`."""
    counts: dict[str, object]
    predictions: list[Prediction]
    finished: bool
    """True when results.json exists; else the figures are over the problems that have ended so far."""


@dataclass(frozen=True)
class Curves:
    """Accuracy along a run."""

    series: dict[str, list[MetricPoint]]
    """Points in step order, by metric name: `accuracy`, `accuracy/<stratum>`."""
    from_steps: bool
    """Counted from steps.jsonl because metrics.jsonl has none yet: n can fall from step to step."""


@dataclass
class CandidateFigures:
    """What the candidates of a run say, without their texts."""

    total: int = 0
    unparsable: Proportion = field(default_factory=Proportion)
    """Candidates without an answer, after their retry."""
    retried: Proportion = field(default_factory=Proportion)
    by_problem: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    correct: dict[tuple[str, CandidateId], bool] = field(default_factory=dict)
    graded_means: list[tuple[float, bool]] = field(default_factory=list)


def load_outcome(run_dir: Path) -> Outcome:
    """Read what a run has reached. Raises RunDirectoryError or DataError."""
    manifest = read_manifest(run_dir)
    predictions = read_predictions(run_dir)
    results = read_results(run_dir)
    finished = results is not None
    if results is None:
        results = _results_so_far(predictions, read_steps(run_dir))
    return Outcome(
        run_dir=run_dir,
        manifest=manifest,
        metrics=results.metrics,
        by_stratum=results.by_stratum,
        cost=_with_total(results.cost),
        counts=results.counts,
        predictions=predictions,
        finished=finished,
    )


def load_curves(run_dir: Path, steps: list[StepRecord]) -> Curves:
    """Read the accuracy curves, or count them from the steps of a run that has not written them."""
    points = [p for p in read_metrics(run_dir) if p.name == ACCURACY or p.name.startswith(f"{ACCURACY}/")]
    from_steps = not points
    series: dict[str, list[MetricPoint]] = defaultdict(list)
    for point in points or _points_from_steps(steps):
        if point.value is not None:
            series[point.name].append(point)
    for values in series.values():
        values.sort(key=lambda p: p.step)
    return Curves(dict(series), from_steps)


def load_candidate_figures(run_dir: Path) -> CandidateFigures:
    """Count over candidates.jsonl, holding no texts."""
    figures = CandidateFigures()
    for record in lines(run_dir / "candidates.jsonl", msgspec.json.Decoder(CandidateKey)):
        figures.total += 1
        figures.unparsable.add(record.answer is None)
        figures.retried.add(record.attempts > 1)
        figures.by_problem[record.problem] += 1
        if record.correct is not None:
            figures.correct[record.problem, record.id] = record.correct
            if record.mean is not None:
                figures.graded_means.append((record.mean, record.correct))
    return figures


def load_judge(run_dir: Path, correct: dict[tuple[str, CandidateId], bool]) -> JudgeDiagnostics | None:
    """Gather the judge diagnostics; None when the run has no duels."""
    diagnostics = JudgeDiagnostics()
    for duel in lines(run_dir / "comparisons.jsonl", msgspec.json.Decoder(DuelKey)):
        diagnostics.add(duel, correct)
    return diagnostics if diagnostics.decisive.n else None


def _results_so_far(predictions: list[Prediction], steps: list[StepRecord]) -> Results:
    graded: dict[str, Proportion] = defaultdict(Proportion)
    overall = Proportion()
    for prediction in predictions:
        if prediction.correct is not None:
            overall.add(prediction.correct)
            graded[prediction.stratum].add(prediction.correct)
    cost_by_problem = {step.problem: step.cost for step in steps} | {p.problem: p.cost for p in predictions}
    return Results(
        metrics={ACCURACY: _metric(overall)},
        by_stratum={stratum: {ACCURACY: _metric(share)} for stratum, share in sorted(graded.items())},
        cost=_sum_costs(cost_by_problem.values()),
        counts={"problems": len(predictions)},
    )


def _metric(share: Proportion) -> Metric:
    return Metric(share.value, share.ci95, share.n)


def _sum_costs(costs: Iterable[dict[str, RoleCost]]) -> dict[str, RoleCost]:
    totals: dict[str, RoleCost] = {}
    for cost in costs:
        for role, spent in cost.items():
            totals[role] = _plus(totals[role], spent) if role in totals else spent
    return totals


def _plus(a: RoleCost, b: RoleCost) -> RoleCost:
    seconds = None if a.seconds is None or b.seconds is None else a.seconds + b.seconds
    return RoleCost(
        a.calls + b.calls, a.prompt_tokens + b.prompt_tokens, a.completion_tokens + b.completion_tokens, seconds
    )


def _with_total(cost: dict[str, RoleCost]) -> dict[str, RoleCost]:
    roles = {role: spent for role, spent in cost.items() if role != "total"}
    if "total" in cost:
        return {**roles, "total": cost["total"]}
    return {**roles, **_sum_costs({"total": spent} for spent in roles.values())}


def _points_from_steps(steps: list[StepRecord]) -> list[MetricPoint]:
    by_point: dict[tuple[str, int], list[StepRecord]] = defaultdict(list)
    for record in steps:
        if record.correct is not None:
            by_point[ACCURACY, record.step].append(record)
            by_point[f"{ACCURACY}/{record.stratum}", record.step].append(record)
    return [_point(name, step, records) for (name, step), records in by_point.items()]


def _point(name: str, step: int, records: list[StepRecord]) -> MetricPoint:
    share = Proportion(sum(r.correct is True for r in records), len(records))
    calls = sum(spent.calls for r in records for spent in r.cost.values())
    tokens = sum(spent.tokens for r in records for spent in r.cost.values())
    return MetricPoint(step, name, share.value, share.ci95, share.n, calls / share.n, tokens / share.n)

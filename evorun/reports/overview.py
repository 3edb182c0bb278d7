"""The figures of one run, from its files; what an unfinished run has not written yet is counted from its records."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evorun.reports.judge import JudgeDiagnostics
from evorun.runs.candidates import CandidateId
from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_metrics, read_predictions, read_records, read_results, read_steps, read_training
from evorun.runs.results import (
    ACCURACY,
    TRAINING_PREFIX,
    Proportion,
    cost_by_role,
    metric_series,
    outcome_metrics,
    score_names,
    training_series,
)
from evorun.runs.schema import (
    CandidateRecord,
    ComparisonRecord,
    Manifest,
    Metric,
    MetricPoint,
    PredictionRecord,
    Results,
    RoleCost,
    StepRecord,
)


@dataclass(frozen=True)
class Outcome:
    """What a run has reached: the same for a terminal table, a page, and a comparison of runs."""

    run_dir: Path
    manifest: Manifest
    metrics: dict[str, Metric]
    by_stratum: dict[str, dict[str, Metric]]
    cost: dict[str, RoleCost]
    """By role; the sum is under `total`."""
    counts: dict[str, int]
    predictions: list[PredictionRecord]
    finished: bool
    """True when results.json exists; else the figures are over the problems that have ended so far."""

    @property
    def scores(self) -> dict[str, Metric]:
        """The means of the task's scores, by name, in the task's order."""
        return {name: self.metrics[name] for name in score_names(self.predictions) if name in self.metrics}


@dataclass(frozen=True)
class Curves:
    """Accuracy and scores along a run."""

    series: dict[str, list[MetricPoint]]
    """Points in step order, by metric name: `accuracy`, `accuracy/<stratum>`."""
    scores: dict[str, list[MetricPoint]]
    """By score name, over all strata."""
    training: dict[str, list[MetricPoint]]
    """What training steps measured, by the figure's name."""
    from_steps: bool
    """Counted from steps.jsonl, over the problems that have begun, because metrics.jsonl is not written yet."""


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
    manifest = load_manifest(run_dir)
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
        cost=results.cost,
        counts=results.counts,
        predictions=predictions,
        finished=finished,
    )


def load_curves(run_dir: Path, predictions: list[PredictionRecord], steps: list[StepRecord]) -> Curves:
    """Read the curves, or count them from the steps of a run that has not written them."""
    recorded = read_metrics(run_dir)
    accuracy: dict[str, list[MetricPoint]] = defaultdict(list)
    scores: dict[str, list[MetricPoint]] = {name: [] for name in score_names([*predictions, *steps])}
    for point in recorded or metric_series(steps):
        if point.name == ACCURACY or point.name.startswith(f"{ACCURACY}/"):
            accuracy[point.name].append(point)
        elif point.name in scores:
            scores[point.name].append(point)
    training: dict[str, list[MetricPoint]] = defaultdict(list)
    for point in training_series(read_training(run_dir)):
        training[point.name.removeprefix(TRAINING_PREFIX)].append(point)
    kept = {name: points for name, points in scores.items() if points}
    return Curves(dict(accuracy), kept, dict(training), not recorded)


def load_candidate_figures(run_dir: Path) -> CandidateFigures:
    """Count over candidates.jsonl, holding no texts."""
    figures = CandidateFigures()
    for record in read_records(run_dir / "candidates.jsonl", CandidateRecord):
        figures.total += 1
        figures.unparsable.add(record.answer is None)
        figures.retried.add(record.attempts > 1)
        figures.by_problem[record.problem] += 1
        figures.correct[record.problem, record.id] = record.correct
        if record.mean is not None:
            figures.graded_means.append((record.mean, record.correct))
    return figures


def load_judge(run_dir: Path, correct: dict[tuple[str, CandidateId], bool]) -> JudgeDiagnostics | None:
    """Gather the judge diagnostics; None when the run has no duels."""
    diagnostics = JudgeDiagnostics()
    for duel in read_records(run_dir / "comparisons.jsonl", ComparisonRecord):
        diagnostics.add(duel, correct)
    return diagnostics if diagnostics.decisive.n else None


def count_verdicts(run_dir: Path) -> int:
    """Count the judge's verdicts: one or two a duel."""
    return sum(len(duel.verdicts) for duel in read_records(run_dir / "comparisons.jsonl", _Judged))


class _Judged(msgspec.Struct):
    verdicts: list[str]


def _results_so_far(predictions: list[PredictionRecord], steps: list[StepRecord]) -> Results:
    metrics, by_stratum = outcome_metrics(predictions)
    return Results(
        metrics=metrics,
        by_stratum=by_stratum,
        cost=cost_by_role(steps, None),
        counts={"problems": len(predictions)},
    )

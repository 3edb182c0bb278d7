"""The figures of one run, from its files; those that an unfinished run lacks are counted from its records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from evorun.models.base import Wasted
from evorun.reports.missing import missing_records
from evorun.reports.rubrics.hacking import Hacking, hacking, rewarded_by_rubric
from evorun.reports.training import divergence
from evorun.runs.checksums import changed_files
from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_metrics, read_predictions, read_records, read_results, read_steps, read_training
from evorun.runs.results import (
    TRAINING_PREFIX,
    cost_by_role,
    metric_series,
    outcome_metrics,
    recorded_scores,
    training_series,
)
from evorun.runs.schema import (
    CandidateRecord,
    Manifest,
    Metric,
    MetricPoint,
    PredictionRecord,
    Reached,
    Results,
    RoleCost,
    StepRecord,
    Stop,
)
from evorun.runs.scores import Score
from evorun.runs.search_figures import search_figures
from evorun.runs.statistics import Proportion


@dataclass(frozen=True)
class Outcome:
    """The figures of a run so far: the same for a terminal table, a page, and a comparison of runs."""

    run_dir: Path
    manifest: Manifest
    metrics: dict[str, Metric]
    by_stratum: dict[str, dict[str, Metric]]
    cost: dict[str, RoleCost]
    """By role; the sum is under `total`."""
    counts: dict[str, int]
    wasted: dict[str, Wasted]
    """Attempts of model calls that gave no answer, by kind."""
    predictions: list[PredictionRecord]
    finished: bool
    """True when results.json exists; else the figures are over the problems that have ended so far."""
    scores: Sequence[Score]
    """The primary one, then the others that are recorded."""
    changed: Sequence[str]
    """A line for each file that is not as the run left it."""
    planned_steps: int | None
    """Number of the step after which the method ends by itself, where that is known."""
    reached: Mapping[Stop, Reached]
    """The last step, by what ended the problems; none before the run has ended."""
    missing: Sequence[str]
    """A line for each file that lacks records which the run's own counts speak of."""
    trained: bool
    """True when the run has trained weights: its steps are training steps, and its calls serve all problems."""
    divergence: Sequence[str]
    """A line for each sign that its training has gone wrong."""
    hacking: Hacking | None
    """Signs that its reward was hacked; None where no rubric rewards."""

    @property
    def primary(self) -> Score:
        """The score that tables and curves show first."""
        return self.scores[0]

    @property
    def other_scores(self) -> Sequence[Score]:
        """All but the primary one."""
        return self.scores[1:]

    @property
    def second(self) -> Score | None:
        """The second score that the task declares: it orders runs that are equal in the primary one."""
        names = [score.name for score in self.manifest.scores[1:2]]
        return next((score for score in self.scores if score.name in names), None)


@dataclass(frozen=True)
class Curves:
    """Scores along a run."""

    series: dict[str, list[MetricPoint]]
    """Points of the primary score in step order, by metric name: `<score>`, `<score>/<stratum>`."""
    scores: dict[str, list[MetricPoint]]
    """The other ones by name, over all strata."""
    others: Sequence[Score]
    """Those, in order."""
    training: dict[str, list[MetricPoint]]
    """Figures of training steps, by name."""
    from_steps: bool
    """Counted from steps.jsonl, over the problems that have begun, because metrics.jsonl is not written yet."""

    def times(self, problems: int) -> "Curves":
        """Return the same against the calls and tokens of the whole run, in the place of a problem's."""

        def whole(by_name: Mapping[str, list[MetricPoint]]) -> dict[str, list[MetricPoint]]:
            return {
                name: [
                    msgspec.structs.replace(point, calls=point.calls * problems, tokens=point.tokens * problems)
                    for point in points
                ]
                for name, points in by_name.items()
            }

        return replace(self, series=whole(self.series), scores=whole(self.scores))


@dataclass
class CandidateFigures:
    """Counts and scores of a run's responses, without their texts."""

    total: int = 0
    unparsable: Proportion = field(default_factory=Proportion)
    """Candidates without an answer, after their retry."""
    retried: Proportion = field(default_factory=Proportion)
    by_problem: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    graded_means: list[tuple[float, float]] = field(default_factory=list)
    """Posterior mean and value of the same score."""


def load_outcome(run_dir: Path) -> Outcome:
    """Read the figures of a run, finished or not. Raises RunDirectoryError or DataError."""
    manifest = load_manifest(run_dir)
    predictions = read_predictions(run_dir)
    results = read_results(run_dir)
    finished = results is not None
    missing = missing_records(run_dir, manifest, results, predictions)
    training = read_training(run_dir)
    # steps hold texts, so they are read only where something is counted from them
    steps = read_steps(run_dir) if results is None or rewarded_by_rubric(training) else []
    if results is None:
        metrics, by_stratum = outcome_metrics(predictions, manifest.scores)
        # steps too: problems under way have spent calls that no prediction accounts for
        search, counts = search_figures(run_dir, steps, predictions, manifest.scores)
        results = Results(
            metrics={**metrics, **search},
            by_stratum=by_stratum,
            cost=cost_by_role(steps, None),
            counts={"problems": len(predictions), **counts},
        )
    return Outcome(
        run_dir=run_dir,
        manifest=manifest,
        metrics=results.metrics,
        by_stratum=results.by_stratum,
        cost=results.cost,
        counts=results.counts,
        wasted=results.wasted,
        predictions=predictions,
        finished=finished,
        scores=recorded_scores(predictions, manifest.scores),
        changed=changed_files(run_dir, manifest),
        planned_steps=results.planned_steps,
        reached=results.reached,
        missing=missing,
        trained=bool(training),
        divergence=divergence(training),
        hacking=hacking(manifest, training, steps),
    )


def load_curves(outcome: Outcome, steps: list[StepRecord]) -> Curves:
    """Read the curves, or count them from the steps of a run that has not written them."""
    recorded = read_metrics(outcome.run_dir)
    run_dir, declared = outcome.run_dir, outcome.manifest.scores
    first, *others = recorded_scores([*outcome.predictions, *steps], declared)
    primary: dict[str, list[MetricPoint]] = defaultdict(list)
    scores: dict[str, list[MetricPoint]] = {score.name: [] for score in others}
    # metrics.jsonl is written at the end of a run
    for point in recorded or metric_series(steps, declared):
        if point.name == first.name or point.name.startswith(f"{first.name}/"):
            primary[point.name].append(point)
        elif point.name in scores:
            scores[point.name].append(point)
    training: dict[str, list[MetricPoint]] = defaultdict(list)
    for point in training_series(read_training(run_dir)):
        training[point.name.removeprefix(TRAINING_PREFIX)].append(point)
    # scores of which there are no points yet have no panel
    kept = {name: points for name, points in scores.items() if points}
    return Curves(dict(primary), kept, [score for score in others if score.name in kept], dict(training), not recorded)


def load_candidate_figures(run_dir: Path, measure: Score) -> CandidateFigures:
    """Count over candidates.jsonl, holding no texts; `measure` says how good a candidate is."""
    figures = CandidateFigures()
    for record in read_records(run_dir / "candidates.jsonl", CandidateRecord):
        if record.kind != "response":  # system prompts and rubrics have no answer to grade
            continue
        figures.total += 1
        figures.unparsable.add(record.answer is None)
        figures.retried.add(record.attempts > 1)
        figures.by_problem[record.problem] += 1
        value = measure.value_in(record)
        if record.mean is not None and value is not None:
            figures.graded_means.append((record.mean, value))
    return figures

"""The figures of one run, from its files; for an unfinished run they are counted from its records."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evorun.errors import JournalError, RunDirectoryError
from evorun.models.base import Wasted
from evorun.reports.hacking import Hacking, find_hacking, has_gameable_rewards
from evorun.reports.missing import find_missing_records
from evorun.reports.population import count_crossovers, load_given_prompts
from evorun.reports.training import find_negligible_training, find_training_failures
from evorun.runs.aggregates import Aggregates, count_aggregates, read_aggregates
from evorun.runs.checksums import changed_files
from evorun.runs.directory import find_recording, load_manifest
from evorun.runs.formats import name_step
from evorun.runs.journal_file import JOURNAL
from evorun.runs.manifest import Manifest
from evorun.runs.prices import oldest_date, price_gpus, price_run
from evorun.runs.reading import (
    read_metrics,
    read_predictions,
    read_results,
    read_speed,
    read_steps_without_texts,
    read_training,
)
from evorun.runs.results import (
    TRAINING_PREFIX,
    add_training,
    cost_by_role,
    cost_of_calls,
    metric_series,
    outcome_metrics,
    recorded_scores,
    sum_by_model,
    training_series,
    with_prices,
)
from evorun.runs.schema import (
    CandidateRecord,
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
from evorun.runs.selection import SEARCH_PREFIX
from evorun.runs.spending import read_spending
from evorun.runs.statistics import Proportion
from evorun.runs.strata import sort_strata


@dataclass(frozen=True)
class Outcome:
    """The figures of a run so far: the same for a terminal table, a page, and a comparison of runs."""

    run_dir: Path
    manifest: Manifest
    recording: Path | None
    """The folder of the run that this one replays; None for a run of its own."""
    metrics: dict[str, Metric]
    by_stratum: dict[str, dict[str, Metric]]
    cost: dict[str, RoleCost]
    """By role; the sum is under `total`."""
    cost_by_model: dict[str, RoleCost]
    """By model; empty where the policy answered all."""
    sequential_tokens: float | None
    """Completion tokens one after another, the mean over problems; None before the run has ended."""
    counts: dict[str, int]
    cost_note: str
    """A caveat on the cost; mostly empty."""
    refused: Mapping[str, int]
    """Requests that the engine refused, by role."""
    wasted: dict[str, Wasted]
    """Attempts of model calls that gave no answer, by kind."""
    predictions: list[PredictionRecord]
    finished: bool
    """True when results.json exists; otherwise figures are over the problems that have ended so far."""
    scores: Sequence[Score]
    """The primary one, then the others that are recorded."""
    changed: Sequence[str]
    """A line for each file that is not as the run left it."""
    planned_steps: int | None
    """Number of the step after which the method ends by itself, where that is known."""
    reached: Mapping[Stop, Reached]
    """The last step, by what ended the problems; none before the run has ended."""
    missing: Sequence[str]
    """A line for each file that lacks records by the run's own counts."""
    trained: bool
    """True when the run has trained weights: its steps are training steps, and its calls serve all problems."""
    divergence: Sequence[str]
    """A line for each sign that training failed or changed nothing."""
    hacking: Hacking | None
    """Signs that its reward was hacked; None without rubric rewards."""
    crossovers: int | None
    """System prompts made by crossover; None for methods that have no such operator."""
    given_prompts: Sequence[CandidateRecord]
    """The prompts that a run of given ones has tested, in order: its scores are of the last. None of other runs."""
    unread: Sequence[str]
    """Files that were neither read nor compared with their checksums, since nothing of them is shown."""
    agreement: Mapping[str, Proportion]
    """Decisive duels of unequal candidates that the better one won, by problem; empty where they were not counted."""
    choices: Mapping[str, bool]
    """By problem with a right candidate, whether the answer is right; empty where they were not counted."""
    bred: int | None
    """Responses that the model wrote in view of earlier ones; None where they were not counted."""
    areas: Mapping[str, float]
    """The posterior AUC by problem; empty where it was not counted."""

    @property
    def intact(self) -> bool:
        """True if all files are known to be as the run left them."""
        return bool(self.manifest.files) and not self.changed and not self.unread

    @property
    def step_name(self) -> str:
        """The word for the run's steps."""
        return name_step(self.manifest.config, self.trained)

    @property
    def primary(self) -> Score:
        """The score that tables and curves show first."""
        return self.scores[0]

    @property
    def scored_prompt(self) -> str:
        """The one of several given prompts that its scores are of; empty for other runs."""
        prompts = self.given_prompts
        return f"prompt {prompts[-1].id}, the last of {len(prompts)}" if len(prompts) > 1 else ""

    @property
    def price_date(self) -> date | None:
        """Date of the oldest price of tokens; None without any."""
        return oldest_date(self.manifest.prices)

    @property
    def gpu_hour(self) -> float | None:
        """Price of an hour of one of the run's GPUs, in dollars; None where it used none, or it is unknown."""
        return None if self.manifest.gpu_price is None else self.manifest.gpu_price.hour

    @property
    def gpu_dollars(self) -> float | None:
        """Price of the run's GPUs for its wall-clock time; None where it used none, or it is unknown."""
        return price_gpus(self.manifest)

    @property
    def price(self) -> float | None:
        """Price of the run in dollars, tokens and GPUs together; None where a part is unknown, or it cost neither."""
        total = self.cost.get("total")
        return price_run(self.manifest, None if total is None else total.price)

    @property
    def other_scores(self) -> Sequence[Score]:
        """All but the primary one."""
        return self.scores[1:]

    @property
    def second(self) -> Score | None:
        """The second score that the task declares: it orders runs that are equal in the primary one."""
        names = [score.name for score in self.manifest.scores[1:2]]
        return next((score for score in self.other_scores if score.name in names), None)


@dataclass(frozen=True)
class Curves:
    """Scores during a run."""

    series: dict[str, list[MetricPoint]]
    """Points of the primary score in step order, by metric name: `<score>`, `<score>/<stratum>`."""
    scores: dict[str, list[MetricPoint]]
    """The other ones by name, over all strata."""
    others: Sequence[Score]
    """Those, in order."""
    training: dict[str, list[MetricPoint]]
    """Figures of training steps, by name."""
    search: dict[str, list[MetricPoint]]
    """Figures of the selection among candidates (`selection_series`), by name; none before a run has ended."""
    diagnostics: dict[str, list[MetricPoint]]
    """Figures that the steps report of themselves, by name."""
    from_steps: bool
    """Counted from steps.jsonl, over the problems that have begun, because metrics.jsonl is not written yet."""
    problems: int
    """Number of problems over which the points' costs are means."""


_LONG = ("candidates.jsonl", "comparisons.jsonl", "steps.jsonl")
"""Records with texts: most of a run's bytes."""


def load_outcome(run_dir: Path, *, shows_records: bool = True) -> Outcome:
    """Read the figures of a run, finished or not. Raises RunDirectoryError or DataError.

    shows_records: compare all files with their checksums; otherwise only those with the figures, unless the run trains
    or has candidates that serve all problems.
    """
    manifest = load_manifest(run_dir)
    predictions = read_predictions(run_dir)
    results = read_results(run_dir)
    finished = results is not None
    unread: tuple[str, ...] = ()
    stored: Aggregates | None = None
    if not shows_records and "training.jsonl" not in manifest.files:
        stored = read_aggregates(run_dir, manifest)
        unread = _LONG if stored is not None and not stored.shared else ()
    changed = changed_files(run_dir, manifest, unread)
    # files with their final checksums lack nothing, and counting the records of long ones takes as long as drawing
    intact = bool(manifest.files) and not changed
    missing = [] if intact else find_missing_records(run_dir, manifest, results, predictions)
    training = read_training(run_dir)
    # steps hold texts, so they are read only where something is counted from them
    steps = read_steps_without_texts(run_dir) if results is None or has_gameable_rewards(manifest, training) else []
    cost_note = ""
    if results is None:
        metrics, by_stratum = outcome_metrics(predictions, manifest.scores)
        search, counts = search_figures(run_dir, steps, predictions, manifest.scores)
        cost, refused, cost_note = _sum_cost_so_far(run_dir, manifest, steps)
        cost = add_training(cost, training)
        results = Results(
            metrics={**metrics, **search},
            by_stratum=by_stratum,
            cost=cost,
            counts={"problems": len(predictions), **counts},
            refused=refused,
        )
    cost = results.cost if results.price_date else with_prices(results.cost, manifest.prices)
    return Outcome(
        run_dir=run_dir,
        manifest=manifest,
        recording=find_recording(manifest.config),
        metrics=results.metrics,
        by_stratum={name: results.by_stratum[name] for name in sort_strata(results.by_stratum, manifest.strata)},
        cost=cost,
        cost_by_model=sum_by_model(cost, manifest.answered_by),
        sequential_tokens=_find_sequential_tokens(run_dir) if finished else None,
        counts=results.counts,
        cost_note=cost_note,
        refused=results.refused,
        wasted=results.wasted,
        predictions=predictions,
        finished=finished,
        scores=recorded_scores(predictions, manifest.scores),
        changed=changed,
        planned_steps=results.planned_steps,
        reached=results.reached,
        missing=missing,
        trained=bool(training),
        divergence=[
            *find_training_failures(training),
            *(find_negligible_training(manifest.config, training) if finished else ()),
        ],
        hacking=find_hacking(manifest, training, steps),
        crossovers=count_crossovers(run_dir) if training and find_crossover_rate(manifest.config) is not None else None,
        given_prompts=load_given_prompts(run_dir),
        unread=unread,
        agreement={} if stored is None else stored.agreement,
        choices={} if stored is None else _find_choices(predictions, stored.covered),
        bred=None if stored is None else stored.bred,
        areas={} if stored is None else stored.areas,
    )


def _find_choices(predictions: Sequence[PredictionRecord], covered: Collection[str]) -> dict[str, bool]:
    right = {prediction.problem: bool(prediction.correct) for prediction in predictions}
    return {problem: right[problem] for problem in covered if problem in right}


def find_crossover_rate(config: Mapping[str, Any]) -> float | None:
    """Return the probability of a crossover per step, 0 where nothing evolves; None where a method has no crossover."""
    method = config.get("method")
    rate = method.get("crossover_rate") if isinstance(method, Mapping) else None
    if not isinstance(method, Mapping) or not isinstance(rate, int | float):
        return None
    return rate if method.get("evolve", True) else 0.0


def _find_sequential_tokens(run_dir: Path) -> float | None:
    """Return the sequential tokens of the whole run: those up to its last step."""
    known = [point for point in read_metrics(run_dir) if point.sequential_tokens is not None]
    return max(known, key=lambda point: point.step).sequential_tokens if known else None


def _sum_cost_so_far(
    run_dir: Path, manifest: Manifest, steps: Sequence[StepRecord]
) -> tuple[dict[str, RoleCost], dict[str, int], str]:
    """Return an unfinished run's cost by role, its refused requests, and a caveat.

    They come from the journal, which has calls made since the last recorded step.
    """
    if find_recording(manifest.config) is not None:
        return cost_by_role(steps, None), {}, "Up to the last recorded step of each problem: the run is a replay."
    try:
        spending = read_spending(run_dir / JOURNAL)
    except (JournalError, RunDirectoryError):
        note = "Up to the last recorded step of each problem: no journal records later calls."
        return cost_by_role(steps, None), {}, note
    return cost_of_calls(spending.by_role), dict(spending.refused), ""


def load_curves(outcome: Outcome, steps: list[StepRecord]) -> Curves:
    """Read the curves, or count them from the steps of a run that has not written them."""
    recorded = read_metrics(outcome.run_dir)
    run_dir, declared = outcome.run_dir, outcome.manifest.scores
    first, *others = recorded_scores([*outcome.predictions, *steps], declared)
    primary: dict[str, list[MetricPoint]] = defaultdict(list)
    scores: dict[str, list[MetricPoint]] = {score.name: [] for score in others}
    search: dict[str, list[MetricPoint]] = defaultdict(list)
    diagnostics: dict[str, list[MetricPoint]] = defaultdict(list)
    # metrics.jsonl is written at the end of a run
    for point in recorded or metric_series(steps, declared, rates=outcome.manifest.prices):
        if point.name == first.name or point.name.startswith(f"{first.name}/"):
            primary[point.name].append(point)
        elif point.name in scores:
            scores[point.name].append(point)
        elif point.name.startswith(SEARCH_PREFIX):
            search[point.name.removeprefix(SEARCH_PREFIX)].append(point)
        elif not point.name.startswith(TRAINING_PREFIX):
            diagnostics[point.name].append(point)
    if outcome.trained:  # candidates that serve all problems have one cost, the run's, in every stratum
        whole = {point.step: point for point in primary[first.name]}
        for name, points in primary.items():
            costs = [(point, whole[point.step]) for point in points if point.step in whole]
            primary[name] = [
                replace(
                    point,
                    calls=run.calls,
                    tokens=run.tokens,
                    price=run.price,
                    sequential_tokens=run.sequential_tokens,
                )
                for point, run in costs
            ]
    training: dict[str, list[MetricPoint]] = defaultdict(list)
    records, speed = read_training(run_dir), read_speed(run_dir)
    timed = [replace(record, figures={**record.figures, **speed.get(record.step, {})}) for record in records]
    for point in training_series(timed):
        training[point.name.removeprefix(TRAINING_PREFIX)].append(point)
    # scores of which there are no points yet have no panel
    kept = {name: points for name, points in scores.items() if points}
    shown = [score for score in others if score.name in kept]
    problems = len({record.problem for record in (outcome.predictions if recorded else steps)})
    strata = sort_strata((name.partition("/")[2] for name in primary if name != first.name), outcome.manifest.strata)
    names = [first.name, *(f"{first.name}/{stratum}" for stratum in strata)]
    series = {name: primary[name] for name in names if name in primary}
    return Curves(series, kept, shown, dict(training), dict(search), dict(diagnostics), not recorded, problems)


def load_aggregates(outcome: Outcome, measure: Score) -> Aggregates:
    """Return the aggregates of candidates and duels, counted again if the records have changed.

    measure: the score that says how good a candidate is. Raises DataError.
    """
    stored = read_aggregates(outcome.run_dir, outcome.manifest) if outcome.intact else None
    return count_aggregates(outcome.run_dir, measure) if stored is None else stored

"""The runs of a comparison: the figures of each and its cost per problem."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from evorun.errors import ConfigError, RunDirectoryError
from evorun.reports.comparison.names import (
    drop_adapter,
    get_policy,
    get_setup,
    is_random_baseline,
    is_student,
    join_parts,
    name_parts,
)
from evorun.reports.comparison.reported import ReportedFigures, find_reported
from evorun.reports.facts import name_origins
from evorun.reports.overview import Curves, Outcome, load_curves, load_outcome
from evorun.runs.counting import CountedCandidate
from evorun.runs.directory import MANIFEST, PROBLEMS, load_manifest
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.runs.reading import read_records, read_steps_without_texts
from evorun.runs.recording import restore_engines
from evorun.runs.schema import Metric, MetricPoint
from evorun.runs.scores import Score
from evorun.runs.spending import EXPERT, GOLD
from evorun.runs.sweeps import find_job

ANSWERED = "answered_rate"
"""Candidates that have an answer, among all; those whose requests the engine refused have none."""


@dataclass(frozen=True)
class Cost:
    """Mean cost per problem."""

    calls: float
    prompt_tokens: float
    completion_tokens: float
    tool_calls: float = 0.0
    price: float | None = None
    """Dollars, of the sum those of GPUs, too; None where it is unknown, or there is none."""

    @property
    def tokens(self) -> float:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Run:
    """One run among several."""

    parts: Mapping[str, str]
    """The parts of its name, by aspect."""
    outcome: Outcome
    stratum_by_problem: Mapping[str, str]
    """The stratum of each problem of the run, ended or not."""
    curves: Mapping[str, Sequence[MetricPoint]]
    """Scores by name, over all strata, in step order."""
    curves_by_stratum: Mapping[str, Sequence[MetricPoint]]
    """The score that the task declares first, in step order."""
    training: Mapping[str, Sequence[MetricPoint]]
    """Figures of training steps by name."""
    diagnostics: Mapping[str, Sequence[MetricPoint]]
    """Figures that its steps report of themselves, by name."""
    best_of_pool: float | None
    """Mean of each problem's best candidate by the primary score; None of right and wrong, whose pool has a coverage,
    and where the method chooses among no earlier answers."""
    problems_per_cost: int
    """Number of problems over which the costs of curves are means."""
    cost: Mapping[str, Cost]
    """A problem's, by role; the sum is under `total`."""
    reported: ReportedFigures | None

    @property
    def name(self) -> str:
        """A name that no other run of the comparison has."""
        return join_parts(self.parts)

    @property
    def manifest(self) -> Manifest:
        """The run's manifest."""
        return self.outcome.manifest

    @property
    def is_baseline(self) -> bool:
        """True when the model answered at random."""
        return is_random_baseline(self.manifest)

    @cached_property
    def arm_key(self) -> bytes:
        """All that decides the run's results but the seed: equal for the runs of one arm."""
        manifest = self.manifest
        source, models = manifest.provenance.source, manifest.models
        if is_student(manifest):  # whose weights its settings and the seed decide
            models = {role: msgspec.structs.replace(model, id=drop_adapter(model.id)) for role, model in models.items()}
        same = (manifest.method, manifest.task, models, manifest.simulated, source, get_setup(manifest))
        return msgspec.json.encode(same, order="deterministic")

    @cached_property
    def started(self) -> tuple[str, int]:
        """When its sweep began and its place among the sweep's jobs; of a run alone, when it began."""
        return find_job(self.outcome.run_dir) or (self.manifest.started, 0)

    @property
    def recording(self) -> Path | None:
        """The folder of the run that this one replays; None for a run of its own."""
        recording = self.outcome.recording
        return None if recording is None else recording.resolve()

    @cached_property
    def shows_responses(self) -> bool:
        """True where the model wrote any response in view of earlier ones. Raises DataError."""
        if (bred := self.outcome.bred) is not None:
            return bred > 0
        made = read_records(self.outcome.run_dir / "candidates.jsonl", CountedCandidate)
        return any(candidate.is_bred for candidate in made)

    @property
    def problems(self) -> frozenset[str]:
        """All problems of the run, ended or not."""
        return frozenset(self.stratum_by_problem)

    @property
    def ended(self) -> frozenset[str]:
        """The problems that have ended."""
        return frozenset(prediction.problem for prediction in self.outcome.predictions)

    @property
    def primary(self) -> Score:
        """The score by which the run is ranked."""
        return self.outcome.primary

    @property
    def rank(self) -> tuple[float, float]:
        """Utilities of the primary score and the second one, greater is better; minus infinity for a missing one."""
        primary, second = self._compute_utility(self.primary), self._compute_utility(self.outcome.second)
        return primary, second

    def _compute_utility(self, score: Score | None) -> float:
        mean = None if score is None else self.get_metric(score.name).value
        return -math.inf if score is None or mean is None else score.utility(mean)

    def get_metric(self, name: str) -> Metric:
        """Return the mean of a score over the problems that have ended."""
        return self.outcome.metrics.get(name) or Metric(None, None, 0)

    @property
    def figures(self) -> Mapping[str, Metric]:
        """All figures of results.json by name, and the share of candidates that have an answer."""
        counts = self.outcome.counts
        candidates, lost = counts.get("candidates", 0), counts.get("unparsed_candidates", 0)
        answered = {ANSWERED: Metric(1 - lost / candidates, None, candidates)} if candidates else {}
        return {**self.outcome.metrics, **answered}

    def values(self, score: Score) -> dict[str, float]:
        """Return a score of each problem that has ended and has it, by problem."""
        found = ((prediction.problem, score.value_in(prediction)) for prediction in self.outcome.predictions)
        return {problem: value for problem, value in found if value is not None}

    def restrict_to(self, stratum: str) -> "Run":
        """Return the run on the problems of one stratum, with the primary score alone; curves and cost are left."""
        outcome = self.outcome
        metrics = outcome.by_stratum.get(stratum, {})
        return replace(
            self,
            stratum_by_problem={name: of for name, of in self.stratum_by_problem.items() if of == stratum},
            outcome=replace(
                outcome,
                metrics=metrics,
                by_stratum={stratum: metrics},
                predictions=[prediction for prediction in outcome.predictions if prediction.stratum == stratum],
                scores=[outcome.primary],
            ),
        )

    @property
    def generation(self) -> float:
        """The generation that was reached: the mean over the problems, of a run under way the last of any."""
        ended = self.outcome.reached.values()
        if problems := sum(reached.problems for reached in ended):
            return sum(reached.mean * reached.problems for reached in ended) / problems
        return max((point.step for points in self.curves.values() for point in points), default=0)

    @property
    def origins(self) -> list[str]:
        """Sources of the figures other than a language model on a benchmark, in a word or two each."""
        return name_origins(self.manifest)

    @property
    def caveats(self) -> list[str]:
        """Reasons why the figures are no finished benchmark result, or no fair one, in a few words each."""
        signs = {
            "so far": not self.outcome.finished,
            "failed": self.manifest.status == "failed",
            "gold judge's rubric": self.trains_by_gold_rubric,
        }
        return [*self.origins, *(caveat for caveat, holds in signs.items() if holds)]

    @property
    def trains_by_gold_rubric(self) -> bool:
        """True where the reward goes by the rubric of the gold judge that grades, of whichever models."""
        settings = self.manifest.config.get("method")
        rubric = settings.get("rubric") if isinstance(settings, Mapping) else None
        return rubric == EXPERT and GOLD in self.outcome.cost and self.outcome.hacking is not None


def load_runs(run_dirs: Iterable[Path], score: str | None = None) -> list[Run]:
    """Read the runs, in order. score: the name of the score to rank and test by; by default each task's primary one.

    Raises RunDirectoryError or DataError, and ConfigError where a run lacks the score.
    """
    outcomes = [_with_engines(load_outcome(run_dir, shows_records=False)) for run_dir in run_dirs]
    if score is not None:
        outcomes = [_rank_by(score, outcome) for outcome in outcomes]
    return [_load_run(parts, outcome) for parts, outcome in zip(name_parts(outcomes), outcomes, strict=True)]


def _with_engines(outcome: Outcome) -> Outcome:
    """Return the figures of a replay with the engines of the recorded run: they decided its answers."""
    if outcome.recording is None:
        return outcome
    manifest = msgspec.structs.replace(outcome.manifest, config=restore_engines(outcome.manifest))
    return replace(outcome, manifest=manifest)


def _rank_by(name: str, outcome: Outcome) -> Outcome:
    """Return the figures with the score of that name as the primary one. Raises ConfigError where there is none."""
    chosen = [score for score in outcome.scores if score.name == name]
    if not chosen and not outcome.predictions:  # an interrupted run, which has recorded none yet
        chosen = [score for score in outcome.manifest.scores if score.name == name]
    if not chosen:
        names = ", ".join(score.name for score in outcome.scores)
        raise ConfigError(f"score: expected a score of all runs, got {name}; {display(outcome.run_dir)} has {names}")
    return replace(outcome, scores=[*chosen, *(score for score in outcome.scores if score.name != name)])


def _load_run(parts: Mapping[str, str], outcome: Outcome) -> Run:
    # steps hold texts, so they are read only where no finished run has counted them
    steps = [] if outcome.finished else read_steps_without_texts(outcome.run_dir)
    problems = read_records(outcome.run_dir / PROBLEMS, _Problem)
    manifest = outcome.manifest
    curves = load_curves(outcome, steps)
    declared = manifest.scores[0].name
    return Run(
        parts=parts,
        outcome=outcome,
        stratum_by_problem={record.problem: record.stratum for record in problems},
        curves={declared: curves.series.get(declared, []), **curves.scores},
        curves_by_stratum={
            stratum: points for name, points in curves.series.items() if (stratum := name.partition("/")[2])
        },
        training=curves.training,
        diagnostics=curves.diagnostics,
        best_of_pool=_find_best_of_pool(outcome, curves),
        problems_per_cost=curves.problems,
        cost=_average_cost(outcome),
        # no paper measured a model that answers at random
        reported=None
        if is_random_baseline(manifest)
        else find_reported(manifest.config, manifest.method, manifest.task, get_policy(manifest).name),
    )


def _find_best_of_pool(outcome: Outcome, curves: Curves) -> float | None:
    score, best = outcome.primary, curves.search.get("oracle", [])
    counted = score.name == outcome.manifest.scores[0].name and not score.is_correctness
    return score.from_utility(best[-1].value) if counted and best and best[-1].value is not None else None


def find_tasks_with_baseline(sweep: Path) -> set[str]:
    """Return the tasks of a sweep's completed random baselines; jobs with a malformed manifest are left out."""
    tasks = set()
    for path in sweep.glob(f"*/{MANIFEST}"):
        with suppress(RunDirectoryError):
            manifest = load_manifest(path.parent)
            if is_random_baseline(manifest) and manifest.status == "completed":
                tasks.add(manifest.task)
    return tasks


class _Problem(msgspec.Struct):
    problem: str
    stratum: str


def _average_cost(outcome: Outcome) -> dict[str, Cost]:
    """Return the cost per problem by role, the sum under `total`."""
    n = len(outcome.predictions)
    if outcome.finished:
        # the whole run's cost: calls that serve all problems are part of it
        return {
            role: Cost(
                *(spent.calls / n, spent.prompt_tokens / n, spent.completion_tokens / n, spent.tool_calls / n),
                None if (price := outcome.price if role == "total" else spent.price) is None else price / n,
            )
            for role, spent in outcome.cost.items()
            if n
        }
    # ended problems only: one under way has spent a part of its cost, and with it the mean would be too low
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for prediction in outcome.predictions:
        for role, spent in prediction.cost.items():
            for name in (role, "total"):
                spending = spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.tool_calls
                for field, value in enumerate(spending):
                    sums[name][field] += value
    roles = sorted(sums, key=lambda role: (role == "total", role))
    return {role: Cost(*(value / n for value in sums[role])) for role in roles}

"""The runs of a comparison: the figures of each, its cost a problem, and a name that tells it from the others."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from evorun.reports.banners import SOURCES
from evorun.reports.comparison.reported import ReportedFigures, reported_of
from evorun.reports.overview import Outcome, load_curves, load_outcome
from evorun.runs.directory import ENGINES, PROBLEMS, SIMULATED, identity
from evorun.runs.paths import display
from evorun.runs.reading import read_records, read_steps
from evorun.runs.schema import Manifest, Metric, MetricPoint, ModelInRun
from evorun.runs.scores import Score

SEED = "seed"

_SPEED = ("slots", "seconds_per_token")
"""Settings of a simulated model that change when it answers, never what."""

_MAX_DIFFERENCES = 2
_LONGEST_VALUE = 24


@dataclass(frozen=True)
class Cost:
    """Mean cost of a problem."""

    calls: float
    prompt_tokens: float
    completion_tokens: float

    @property
    def tokens(self) -> float:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Run:
    """One run among several."""

    name: str
    """Unique in the comparison."""
    outcome: Outcome
    problems: frozenset[str]
    """All problems of the run, ended or not."""
    curves: Mapping[str, Sequence[MetricPoint]]
    """Scores by name, over all strata, in step order."""
    cost: Mapping[str, Cost]
    """A problem's, by role; the sum is under `total`."""
    reported: ReportedFigures | None

    @property
    def manifest(self) -> Manifest:
        """The run's manifest."""
        return self.outcome.manifest

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
        primary, second = self._merit(self.primary), self._merit(self.outcome.second)
        return primary, second

    def _merit(self, score: Score | None) -> float:
        mean = None if score is None else self.metric(score.name).value
        return -math.inf if score is None or mean is None else score.utility(mean)

    def metric(self, name: str) -> Metric:
        """Return the mean of a score over the problems that have ended."""
        return self.outcome.metrics.get(name) or Metric(None, None, 0)

    def values(self, score: Score) -> dict[str, float]:
        """Return a score of each problem that has ended and has it, by problem."""
        found = ((prediction.problem, score.value_in(prediction)) for prediction in self.outcome.predictions)
        return {problem: value for problem, value in found if value is not None}

    @property
    def marks(self) -> list[str]:
        """Reasons that the figures are no finished benchmark result, in a word or two each."""
        manifest = self.manifest
        source = manifest.provenance.source
        found = {
            "simulated": manifest.simulated,
            "simulated teacher": manifest.simulated_teacher,
            SOURCES.get(source, source).lower(): source != "benchmark",
            "so far": not self.outcome.finished,
            "failed": manifest.status == "failed",
        }
        return [mark for mark, holds in found.items() if holds]


def load_runs(run_dirs: Sequence[Path]) -> list[Run]:
    """Read the runs, in order. Raises RunDirectoryError or DataError."""
    outcomes = [load_outcome(run_dir) for run_dir in run_dirs]
    return [_run(name, outcome) for name, outcome in zip(names(outcomes), outcomes, strict=True)]


def model_of(manifest: Manifest) -> str:
    """Name the run's model, and those of other roles where they differ from it."""
    model = policy(manifest)
    others = {role: other for role, other in manifest.models.items() if other.id != model.id}
    return " ".join([model.name, *(f"({role}: {other.name})" for role, other in others.items())]).strip()


def engine_of(manifest: Manifest) -> str:
    """Name the engines that serve the run's models."""
    return ", ".join(dict.fromkeys(model.engine for model in manifest.models.values()))


def policy(manifest: Manifest) -> ModelInRun:
    """Return the run's policy; without one, its first model."""
    models = manifest.models
    return models.get("policy") or next(iter(models.values()), ModelInRun("", "", ""))


def setup(manifest: Manifest) -> dict[str, Any]:
    """Return the settings that two runs must share to differ by chance alone: all that decide results but the seed."""
    return {
        key: _answers(value) if key in ENGINES else value
        for key, value in identity(manifest.config).items()
        if key != SEED
    }


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """Name runs by method and, where that is not enough, by further aspects in turn; the folder at last."""
    named = [outcome.manifest.method for outcome in outcomes]
    # in the order in which a reader asks; the folder last, for it is unique and says least
    aspects: list[Callable[[list[Outcome]], list[str]]] = [
        lambda runs: [run.manifest.task for run in runs],
        lambda runs: [model_of(run.manifest) for run in runs],
        lambda runs: [engine_of(run.manifest) for run in runs],
        lambda runs: _variants([setup(run.manifest) for run in runs]),
        lambda runs: [f"seed {run.manifest.seed}" for run in runs],
        lambda runs: [display(run.run_dir) for run in runs],
    ]
    for aspect in aspects:
        namesakes: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(named):
            namesakes[name].append(index)
        for members in namesakes.values():
            words = aspect([outcomes[index] for index in members])
            if len(set(words)) > 1:
                for index, word in zip(members, words, strict=True):
                    named[index] = ", ".join(filter(None, [named[index], word]))
    return named


def _run(name: str, outcome: Outcome) -> Run:
    # steps hold texts, so they are read only where no finished run has counted them
    steps = [] if outcome.finished else read_steps(outcome.run_dir)
    ids = {record.problem for record in read_records(outcome.run_dir / PROBLEMS, _ProblemId)}
    manifest = outcome.manifest
    curves = load_curves(outcome, steps)
    return Run(
        name=name,
        outcome=outcome,
        # a run of an older version has no problems.jsonl
        problems=frozenset(ids or (prediction.problem for prediction in outcome.predictions)),
        curves={outcome.primary.name: curves.series.get(outcome.primary.name, []), **curves.scores},
        cost=_mean_cost(outcome),
        reported=reported_of(manifest.config, manifest.method, manifest.task, policy(manifest).name),
    )


class _ProblemId(msgspec.Struct):
    problem: str


def _mean_cost(outcome: Outcome) -> dict[str, Cost]:
    """Return the cost of a problem by role, the sum under `total`."""
    n = len(outcome.predictions)
    if outcome.finished:
        # the whole run's cost: calls that serve all problems are part of it
        return {
            role: Cost(spent.calls / n, spent.prompt_tokens / n, spent.completion_tokens / n)
            for role, spent in outcome.cost.items()
            if n
        }
    # ended problems only: one under way has spent a part of its cost, and with it the mean would be too low
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for prediction in outcome.predictions:
        for role, spent in prediction.cost.items():
            for name in (role, "total"):
                for field, value in enumerate((spent.calls, spent.prompt_tokens, spent.completion_tokens)):
                    sums[name][field] += value
    roles = sorted(sums, key=lambda role: (role == "total", role))
    return {role: Cost(*(value / n for value in sums[role])) for role in roles}


def _variants(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the values in which configurations differ, by their last key; a word when they are many."""
    flat = [dict(_leaves(config)) for config in configs]
    every_key = dict.fromkeys(key for leaves in flat for key in leaves)
    # repr: values may be lists, and 1 must differ from True
    keys = [key for key in every_key if len({repr(leaves.get(key)) for leaves in flat}) > 1]
    told = keys[:_MAX_DIFFERENCES]
    rest = [f"{len(keys) - len(told)} more"] if len(keys) > len(told) else []
    return [
        " ".join([f"{key.rpartition('.')[2]}={str(leaves.get(key))[:_LONGEST_VALUE]}" for key in told] + rest)
        for leaves in flat
    ]


def _leaves(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found


def simulated_model(manifest: Manifest) -> dict[str, Any] | None:
    """Return the settings of a simulated model, which make it the model that it is; None for a real one."""
    engine = manifest.config.get("engine")
    if not manifest.simulated:
        return None
    return _answers(engine) if isinstance(engine, Mapping) and engine.get("name") == SIMULATED else {}


def _answers(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a simulated model that decide its answers."""
    return {key: value for key, value in engine.items() if key not in _SPEED}

"""Measurements of earlier runs: tokens per call and per second, and scores, by their manifests and results."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorun.errors import EvorunError
from evorun.runs.directory import MANIFEST, identity, load_manifest
from evorun.runs.manifest import Manifest
from evorun.runs.prices import gpu_seconds
from evorun.runs.reading import read_predictions, read_results
from evorun.runs.schema import Metric, Results
from evorun.runs.scores import Score

MAX_RUNS = 1000
"""Most recent runs that are read (ours): reading one takes a few milliseconds."""


class PerCall(NamedTuple):
    """Mean tokens of a role's calls."""

    prompt: float
    cached: float
    completion: float


class Speed(NamedTuple):
    """Completion tokens per second of some runs."""

    tokens: float
    runs: int
    gpus: float
    """Mean number of GPUs that they could use; 0 where that of one is unknown."""
    names: Sequence[str]
    """Of these GPUs."""


class CompletedRun(NamedTuple):
    """A completed run."""

    folder: Path
    manifest: Manifest
    results: Results


class PairedDifferences(NamedTuple):
    """Differences between runs of two methods on the same problems with the same seeds."""

    ours: str
    theirs: str
    differences: NDArray[np.float64]
    """[seeds, problems], ours minus theirs."""


class Recorded(NamedTuple):
    """Completed runs below a folder, the most recent first."""

    runs: Sequence[CompletedRun]

    def per_call(
        self, method: str, task: str, model: str, role: str, like: Mapping[str, Any] | None = None
    ) -> PerCall | None:
        """Return the mean tokens of a role's calls in runs of a method on a task with a policy model, by its id.

        like: a configuration whose settings of the method and budget the runs share, since prompts grow from step to
        step; None for any. Simulated and replayed runs do not count.
        """
        spent = [
            results.cost[role]
            for manifest, results in self._of_model(model)
            if (manifest.method, manifest.task) == (method, task)
            and role in results.cost
            and (like is None or all(manifest.config.get(key) == like.get(key) for key in ("method", "budget")))
        ]
        calls = sum(cost.calls for cost in spent)
        if not calls:
            return None
        return PerCall(
            sum(cost.prompt_tokens for cost in spent) / calls,
            sum(cost.cached_tokens for cost in spent) / calls,
            sum(cost.completion_tokens for cost in spent) / calls,
        )

    def speed(self, engine: str, model: str) -> Speed | None:
        """Return the speed of runs of a model on an engine; None where none are recorded."""
        runs = [
            (manifest, results)
            for manifest, results in self._of_model(model)
            if manifest.models["policy"].engine == engine and manifest.seconds and "total" in results.cost
        ]
        tokens = sum(results.cost["total"].completion_tokens for _, results in runs)
        seconds = sum(manifest.seconds or 0.0 for manifest, _ in runs)
        if not tokens:
            return None
        on_gpus = [gpu_seconds(manifest) for manifest, _ in runs]
        known = [used for used in on_gpus if used is not None]
        names = [name for manifest, _ in runs for name in manifest.hardware.get("gpus") or ()]
        return Speed(tokens / seconds, len(runs), sum(known) / seconds if len(known) == len(runs) else 0.0, names)

    def score(self, task: str, *, simulated: bool) -> tuple[Metric, str] | None:
        """Return the primary score of the run on a task over most problems, and what the run was.

        simulated: runs of simulated models count, too, as they do for a plan of such runs alone.
        """
        known = [
            (metric, f"{manifest.method} with {manifest.models['policy'].kind}")
            for _, manifest, results in self.runs
            if manifest.task == task
            and "policy" in manifest.models
            and manifest.models["policy"].name != "random"
            and (simulated or not manifest.simulated)
            and (metric := results.metrics.get(manifest.scores[0].name)) is not None
            and metric.value is not None
        ]
        return max(known, key=lambda found: found[0].n, default=None)

    def find_differences(
        self,
        method: str,
        others: Collection[str],
        task: str,
        model: str,
        score: Score,
        like: Mapping[str, Any],
        *,
        simulated: bool,
    ) -> list[PairedDifferences]:
        """Return the differences in a score between a method and each other one that shares a seed and two problems.

        others: the other methods; any if there are none. like: a configuration whose settings the runs share, but for
        method, seed and the task's, since a few problems tell of many. simulated: see `score`. Of several runs of a
        method with the same seed the most recent counts.
        """
        settings = _without_own(like)
        by_method: dict[str, dict[int, CompletedRun]] = defaultdict(dict)
        for run in self.runs:
            manifest, policy = run.manifest, run.manifest.models.get("policy")
            if manifest.task != task or policy is None or policy.id != model or manifest.scores[0].name != score.name:
                continue
            if _without_own(manifest.config) == settings and (simulated or not manifest.simulated):
                by_method[manifest.method].setdefault(manifest.seed, run)
        own = by_method.pop(method, {})
        return [
            PairedDifferences(method, name, differences)
            for name in by_method
            if own
            and (not others or name in others)
            and (differences := _subtract(own, by_method[name], score)) is not None
        ]

    def _of_model(self, model: str) -> Iterator[tuple[Manifest, Results]]:
        for _, manifest, results in self.runs:
            policy = manifest.models.get("policy")
            if policy is not None and policy.id == model and policy.engine not in ("simulated", "replay"):
                yield manifest, results


def _without_own(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what a run records, without those of its method, task and seed."""
    return {key: value for key, value in identity(config).items() if key not in ("method", "task", "seed")}


def _subtract(
    ours: Mapping[int, CompletedRun], theirs: Mapping[int, CompletedRun], score: Score
) -> NDArray[np.float64] | None:
    """Return the differences [seeds, problems] of runs by seed on the problems that all have.

    None below two problems, and where all differ by the same amount, which says nothing of how far they vary.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    pairs = [(_read_scores(ours[seed].folder, score), _read_scores(theirs[seed].folder, score)) for seed in seeds]
    shared = set[str].intersection(*(own.keys() & other.keys() for own, other in pairs)) if pairs else set()
    if len(shared) < 2:
        return None
    problems = sorted(shared)
    differences = np.array([[own[problem] - other[problem] for problem in problems] for own, other in pairs])
    return differences if np.ptp(differences) > 0 else None


def _read_scores(folder: Path, score: Score) -> dict[str, float]:
    """Return a run's score by problem; none of a run whose records cannot be read."""
    try:
        values = {record.problem: score.value_in(record) for record in read_predictions(folder)}
    except EvorunError:
        return {}
    return {problem: value for problem, value in values.items() if value is not None}


def read_recorded(folder: Path) -> Recorded:
    """Read the completed runs below a folder, the most recent ones; what cannot be read is left out."""
    files = sorted(folder.rglob("results.json"), key=lambda file: -file.stat().st_mtime) if folder.is_dir() else []
    runs = []
    for file in files[:MAX_RUNS]:
        try:
            manifest = load_manifest(file.parent) if (file.parent / MANIFEST).exists() else None
            results = read_results(file.parent)
        except EvorunError:
            continue
        if manifest is not None and results is not None and manifest.status == "completed":
            runs.append(CompletedRun(file.parent, manifest, results))
    return Recorded(runs)

"""Measurements of earlier runs: tokens per call and per second, and scores, by their manifests and results."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.errors import EvorunError
from evorun.runs.directory import MANIFEST, load_manifest
from evorun.runs.reading import read_results
from evorun.runs.schema import Manifest, Metric, Results

MAX_RUNS = 1000
"""Most recent runs that are read (ours): reading one takes a few milliseconds."""


class PerCall(NamedTuple):
    """Mean tokens of a role's calls."""

    prompt: float
    cached: float
    completion: float


class Recorded(NamedTuple):
    """Completed runs below a folder."""

    runs: Sequence[tuple[Manifest, Results]]

    def per_call(self, method: str, task: str, model: str, role: str) -> PerCall | None:
        """Return the mean tokens of a role's calls in runs of a method on a task with a policy model, by its id."""
        spent = [
            results.cost[role]
            for manifest, results in self._of_model(model)
            if (manifest.method, manifest.task) == (method, task) and role in results.cost
        ]
        calls = sum(cost.calls for cost in spent)
        if not calls:
            return None
        return PerCall(
            sum(cost.prompt_tokens for cost in spent) / calls,
            sum(cost.cached_tokens for cost in spent) / calls,
            sum(cost.completion_tokens for cost in spent) / calls,
        )

    def speed(self, engine: str, model: str) -> tuple[float, int] | None:
        """Return completion tokens per second of runs of a model on an engine, and the number of these runs."""
        spent = [
            (results.cost["total"].completion_tokens, manifest.seconds)
            for manifest, results in self._of_model(model)
            if manifest.models["policy"].engine == engine and manifest.seconds and "total" in results.cost
        ]
        tokens, seconds = sum(tokens for tokens, _ in spent), sum(seconds for _, seconds in spent)
        return (tokens / seconds, len(spent)) if tokens else None

    def score(self, task: str, *, simulated: bool) -> tuple[Metric, str] | None:
        """Return the primary score of the run on a task over most problems, and what the run was.

        simulated: runs of simulated models count, too, as they do for a plan of such runs alone.
        """
        known = [
            (metric, f"{manifest.method} with {manifest.models['policy'].short}")
            for manifest, results in self.runs
            if manifest.task == task
            and "policy" in manifest.models
            and manifest.models["policy"].name != "random"
            and (simulated or not manifest.simulated)
            and (metric := results.metrics.get(manifest.scores[0].name)) is not None
            and metric.value is not None
        ]
        return max(known, key=lambda found: found[0].n, default=None)

    def _of_model(self, model: str) -> Iterator[tuple[Manifest, Results]]:
        for manifest, results in self.runs:
            policy = manifest.models.get("policy")
            if policy is not None and policy.id == model and policy.engine not in ("simulated", "replay"):
                yield manifest, results


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
            runs.append((manifest, results))
    return Recorded(runs)

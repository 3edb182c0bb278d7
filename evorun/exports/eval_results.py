"""The Hub's evaluation results: a file for the folder `.eval_results` of a model's repository.

The format: https://huggingface.co/docs/hub/eval-results.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from evorun.errors import DataError
from evorun.reports.overview import Outcome
from evorun.reports.text import compact, number
from evorun.runs.paths import display


class Benchmark(NamedTuple):
    """The benchmark on the Hub that a run's problems are."""

    dataset: str
    """ORG/NAME of a dataset that is registered as a benchmark."""
    task_id: str
    """As its eval.yaml names it."""
    source: str | None = None
    """URL of the traces or the paper."""


def eval_results(outcome: Outcome, benchmark: Benchmark) -> bytes:
    """Return the YAML file of a completed run; rates in percent, as the Hub's leaderboards have them.

    Raises DataError for a run that says nothing of the model on the benchmark: simulated, unfinished, on a sample or
    on a part of the problems.
    """
    manifest = outcome.manifest
    folder = display(outcome.run_dir)
    if manifest.simulated:
        raise DataError(f"{folder}: expected a run of a real model, got a simulated one, which is no model's result")
    if manifest.status != "completed":
        raise DataError(f"{folder}: expected a completed run, got one that is {manifest.status}")
    if manifest.provenance.source != "benchmark":
        raise DataError(f"{folder}: expected problems of the benchmark, got source '{manifest.provenance.source}'")
    task: Any = manifest.config.get("task", {})
    if task.get("limit") is not None:
        raise DataError(f"{folder}: expected all problems of the benchmark, got task.limit={task['limit']}")
    metric = outcome.metrics[outcome.primary.name]
    if metric.value is None:
        raise DataError(f"{folder}: expected a score, got none")
    scale = 100 if outcome.primary.rate else 1
    entry: dict[str, Any] = {
        "dataset": {"id": benchmark.dataset, "task_id": benchmark.task_id},
        "value": round(scale * metric.value, 2),
        "date": (manifest.ended or manifest.started)[:10],
    }
    if benchmark.source is not None:
        entry["source"] = {"url": benchmark.source, "name": "evorun"}
    entry["notes"] = _describe(outcome, scale, metric.ci95)
    return OmegaConf.to_yaml(OmegaConf.create([entry])).encode()


def _describe(outcome: Outcome, scale: int, interval: tuple[float, float] | None) -> str:
    """Return what the score alone does not say: the method and its cost, without which scores cannot be compared."""
    manifest, total = outcome.manifest, outcome.cost.get("total")
    parts = [f"method {manifest.method}", f"information {manifest.regime}", f"seed {manifest.seed}"]
    if total is not None and outcome.predictions:
        n = len(outcome.predictions)
        parts.append(f"{number(total.calls / n)} calls and {compact(total.tokens / n)} tokens per problem")
    if interval is not None:
        parts.append(f"95 % interval {scale * interval[0]:.1f} to {scale * interval[1]:.1f}")
    others: Mapping[str, Any] = {role: model for role, model in manifest.models.items() if role != "policy"}
    parts += [f"{role} {model.label}" for role, model in others.items()]
    return ", ".join(parts)

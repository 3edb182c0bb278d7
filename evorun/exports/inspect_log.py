"""An Inspect log of a run: its viewer and data frames then open evorun's runs. Needs the package inspect_ai."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError
from evorun.models.requirements import find_missing_packages
from evorun.reports.overview import Outcome
from evorun.runs.reading import read_records
from evorun.runs.recording import open_effects
from evorun.runs.schema import CandidateRecord, PredictionRecord, ProblemRecord

_STATUSES = {"completed": "success", "running": "started", "failed": "error", "interrupted": "cancelled"}


def require_inspect() -> None:
    """Raise ConfigError where the package is missing."""
    if find_missing_packages(["inspect_ai"]):
        raise ConfigError("format=inspect: expected the package inspect_ai: pip install 'evorun[inspect]'")


def write_inspect_log(outcome: Outcome, path: Path) -> None:
    """Write a run as an .eval file, by inspect_ai itself: a sample for each problem that has ended.

    A sample's input is the request that the final response answered; without one it is the problem's fields. Its
    target is empty: a run directory has no reference answers.
    """
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalMetric,
        EvalPlan,
        EvalPlanStep,
        EvalResults,
        EvalScore,
        EvalSpec,
        EvalStats,
        write_eval_log,
    )

    manifest, name = outcome.manifest, outcome.primary.name
    samples = list(_samples(outcome))
    scores = [
        EvalScore(
            name=score,
            scorer=f"evorun/{score}",
            scored_samples=metric.n,
            metrics={
                "mean": EvalMetric(
                    name="mean",
                    value=metric.value,
                    metadata=None if metric.ci95 is None else {"ci95": list(metric.ci95)},
                )
            },
        )
        for score in sorted((score.name for score in outcome.scores), key=lambda score: score != name)
        if (metric := outcome.metrics.get(score)) is not None and metric.value is not None
    ]
    log = EvalLog(
        status=_STATUSES[manifest.status],
        eval=EvalSpec(
            created=manifest.started,
            task=f"{manifest.task}",
            task_args=dict(manifest.config.get("task", {})),
            solver=f"evorun/{manifest.method}",
            solver_args=dict(manifest.config.get("method", {})),
            dataset=EvalDataset(name=manifest.task, samples=len(samples), sample_ids=[s.id for s in samples]),
            model=f"evorun/{manifest.models['policy'].label}",
            config=EvalConfig(),
            packages={"evorun": manifest.evorun_version, **manifest.packages},
            metadata={
                "seed": manifest.seed,
                "regime": manifest.regime,
                "simulated": manifest.simulated,
                "config_digest": manifest.config_digest,
                "cost": msgspec.to_builtins(outcome.cost),
            },
            tags=["simulated"] if manifest.simulated else None,
        ),
        plan=EvalPlan(steps=[EvalPlanStep(solver=f"evorun/{manifest.method}")]),
        results=EvalResults(
            total_samples=sum(1 for _ in read_records(outcome.run_dir / "problems.jsonl", ProblemRecord)),
            completed_samples=len(samples),
            scores=scores,
        ),
        stats=EvalStats(started_at=manifest.started, completed_at=manifest.ended or manifest.started),
        samples=samples,
    )
    write_eval_log(log, str(path), format="eval")


def _samples(outcome: Outcome) -> Iterator[Any]:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    predictions = {prediction.problem: prediction for prediction in outcome.predictions}
    chosen = _chosen(outcome.run_dir, predictions)
    requests = _requests(outcome.run_dir, {c.call for c in chosen.values() if c.call is not None})
    model = outcome.manifest.models["policy"].label
    for record in read_records(outcome.run_dir / "problems.jsonl", ProblemRecord):
        prediction = predictions.get(record.problem)
        if prediction is None:
            continue
        candidate = chosen.get(record.problem)
        messages = _messages(requests.get((candidate.call if candidate else None) or "", []), record)
        output = ModelOutput.from_content(model, candidate.text if candidate else "")
        spent = list(prediction.cost.values())
        prompt, completion = sum(s.prompt_tokens for s in spent), sum(s.completion_tokens for s in spent)
        value = outcome.primary.value_in(prediction)
        yield EvalSample(
            id=record.problem,
            epoch=1,
            input=messages,
            target="",
            messages=[*messages, ChatMessageAssistant(content=candidate.text, model=model)] if candidate else messages,
            output=output,
            scores={
                name: Score(value=score, answer=prediction.answer)
                for name, score in {outcome.primary.name: value, **prediction.scores}.items()
                if score is not None
            },
            metadata={
                "stratum": record.stratum,
                "method": outcome.manifest.method,
                "candidate": prediction.candidate,
                "generation": candidate.generation if candidate else None,
                "operator": candidate.operator if candidate else None,
                "parents": list(candidate.parents) if candidate else [],
                "posterior_mean": prediction.belief.mean if prediction.belief else None,
                "posterior_sd": prediction.belief.sd if prediction.belief else None,
                "candidates": prediction.candidates,
                "steps": prediction.steps,
                "stop": prediction.stop,
                "cost": msgspec.to_builtins(prediction.cost),
                "data": record.data,
            },
            model_usage={
                model: ModelUsage(input_tokens=prompt, output_tokens=completion, total_tokens=prompt + completion)
            },
        )


def _chosen(run: Path, predictions: Mapping[str, PredictionRecord]) -> dict[str, CandidateRecord]:
    """Return the final candidate of each problem."""
    return {
        record.problem: record
        for record in read_records(run / "candidates.jsonl", CandidateRecord)
        if record.problem in predictions and record.id == predictions[record.problem].candidate
    }


def _requests(run: Path, keys: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of the requests with these keys."""
    journal = open_effects(run)
    try:
        found = {}
        for number, (key, _) in enumerate(journal.index()):
            if key in keys:
                request = msgspec.json.decode(journal.effect(number).request)
                found[key] = request.get("messages", [])
        return found
    finally:
        journal.close()


def _messages(request: list[dict[str, Any]], problem: ProblemRecord) -> list[Any]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    found = [
        kinds[message["role"]](content=message.get("content") or "") for message in request if message["role"] in kinds
    ]
    return found or [ChatMessageUser(content=msgspec.json.encode(problem.data).decode())]

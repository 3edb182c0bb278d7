"""results.json and metrics.jsonl: what a run's records add up to. Reads record files, never the run's memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evorun.runs.budget import Usage
from evorun.runs.records import complete_lines, write_atomically, write_json
from evorun.runs.statistics import wilson

R = TypeVar("R", bound=msgspec.Struct)


class StepRecord(msgspec.Struct):
    """The fields of steps.jsonl that series are made of."""

    problem: str
    stratum: str
    step: int
    correct: bool | None
    cost: dict[str, dict[str, int]]
    extra: dict[str, float]


class PredictionRecord(msgspec.Struct):
    """The fields of predictions.jsonl that results are made of."""

    problem: str
    stratum: str
    correct: bool
    stop: str


class ComparisonRecord(msgspec.Struct):
    """The fields of comparisons.jsonl that judge diagnostics are made of."""

    verdicts: list[str]
    outcome: str | None


class CandidateRecord(msgspec.Struct):
    """The fields of candidates.jsonl that counts are made of."""

    error: str | None


def write_results(path: Path, seconds_by_role: Mapping[str, float]) -> dict[str, Any]:
    """Write metrics.jsonl and results.json of a run directory whose records are complete; return the results."""
    series = metric_series(_read(path / "steps.jsonl", StepRecord))
    write_atomically(path / "metrics.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in series))
    predictions = list(_read(path / "predictions.jsonl", PredictionRecord))
    results = {
        "metrics": {"accuracy": proportion([p.correct for p in predictions]), **_judging(path)},
        "by_stratum": {
            stratum: {"accuracy": proportion(correct)}
            for stratum, correct in sorted(_grouped((p.stratum, p.correct) for p in predictions).items())
        },
        "cost": cost_by_role(path / "steps.jsonl", seconds_by_role),
        "counts": _counts(path, predictions),
    }
    write_json(path / "results.json", results)
    return results


def proportion(outcomes: Iterable[bool]) -> dict[str, Any]:
    """Return the share of true outcomes with its 95 % Wilson interval and n; null without outcomes."""
    outcomes = list(outcomes)
    if not outcomes:
        return {"value": None, "ci95": None, "n": 0}
    hits = sum(outcomes)
    return {"value": hits / len(outcomes), "ci95": list(wilson(hits, len(outcomes))), "n": len(outcomes)}


def metric_series(steps: Iterable[StepRecord]) -> list[dict[str, Any]]:
    """Return accuracy, overall and by stratum, and the step's diagnostics, for each step.

    A problem that stopped early counts with its last state in all later steps, so that every point is over the same
    problems. `calls` and `tokens` are means a problem, all roles together, up to that step.
    """
    by_problem: dict[str, list[StepRecord]] = defaultdict(list)
    for step in steps:
        by_problem[step.problem].append(step)
    if not by_problem:
        return []
    last = max(record.step for records in by_problem.values() for record in records)
    series: list[dict[str, Any]] = []
    for number in range(last + 1):
        states = [records[min(number, len(records) - 1)] for records in by_problem.values()]
        reached = [record for record in states if record.step == number]
        series += _rows_of_step(number, states, reached)
    return series


def _rows_of_step(number: int, states: list[StepRecord], reached: list[StepRecord]) -> Iterator[dict[str, Any]]:
    spent = [_spent(state.cost) for state in states]
    cost = {
        "calls": sum(u.calls for u in spent) / len(spent),
        "tokens": sum(u.tokens for u in spent) / len(spent),
    }
    yield {"step": number, "name": "accuracy", **proportion(bool(s.correct) for s in states), **cost}
    for stratum, correct in sorted(_grouped((s.stratum, bool(s.correct)) for s in states).items()):
        yield {"step": number, "name": f"accuracy/{stratum}", **proportion(correct), **cost}
    for name in sorted({name for state in reached for name in state.extra}):
        values = [state.extra[name] for state in reached if name in state.extra]
        mean = sum(values) / len(values)
        yield {"step": number, "name": name, "value": mean, "ci95": None, "n": len(values), **cost}


def cost_by_role(steps: Path, seconds_by_role: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return calls, tokens and model seconds by role and in total; a problem's last step carries its whole cost."""
    last: dict[str, StepRecord] = {record.problem: record for record in _read(steps, StepRecord)}
    usages: dict[str, Usage] = defaultdict(Usage)
    for record in last.values():
        for role, counts in record.cost.items():
            usages[role].add(Usage(**counts))
            usages["total"].add(Usage(**counts))
    seconds = {**seconds_by_role, "total": sum(seconds_by_role.values())}
    return {
        role: {**usages[role].counts(), "seconds": round(seconds.get(role, 0.0), 3)}
        for role in sorted(usages, key=lambda role: (role == "total", role))
    }


def _judging(path: Path) -> dict[str, Any]:
    decisive, named_a = [], []
    for record in _read(path / "comparisons.jsonl", ComparisonRecord):
        decisive.append(record.outcome is not None)
        named_a += [verdict == "A" for verdict in record.verdicts if verdict in ("A", "B")]
    if not decisive:
        return {}
    return {"decisive_rate": proportion(decisive), "position_a_rate": proportion(named_a)}


def _counts(path: Path, predictions: list[PredictionRecord]) -> dict[str, int]:
    candidates = list(_read(path / "candidates.jsonl", CandidateRecord))
    comparisons = list(_read(path / "comparisons.jsonl", ComparisonRecord))
    last_steps: dict[tuple[str, int], StepRecord] = {
        (record.problem, record.step): record for record in _read(path / "steps.jsonl", StepRecord)
    }
    return {
        "problems": len(predictions),
        "stopped_by_budget": sum(p.stop == "budget" for p in predictions),
        "candidates": len(candidates),
        "unparsed_candidates": sum(c.error is not None for c in candidates),
        "unparsable_texts": int(sum(s.extra.get("unparsable_texts", 0) for s in last_steps.values())),
        "comparisons": len(comparisons),
        "invalid_judgments": sum(v == "invalid" for c in comparisons for v in c.verdicts),
    }


def _spent(cost: Mapping[str, Mapping[str, int]]) -> Usage:
    spent = Usage()
    for counts in cost.values():
        spent.add(Usage(**counts))
    return spent


def _grouped(pairs: Iterable[tuple[str, bool]]) -> dict[str, list[bool]]:
    groups: dict[str, list[bool]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _read(path: Path, record: type[R]) -> Iterator[R]:
    decoder = msgspec.json.Decoder(record)
    for line in complete_lines(path):
        yield decoder.decode(line)

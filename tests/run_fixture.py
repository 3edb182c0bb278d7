"""Writes a synthetic run directory in the layout that runs leave behind, with hostile model texts in it if asked."""

import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.runs.statistics import wilson

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "<img src=x onerror='window.pwned = 3'>",
    "\"'><svg onload=window.pwned=4>",
    "<!--<script>",
    "]]>&lt;b&gt; &amp; {{ 7 * 7 }} {% raw %} ${window.pwned = 5}",
    "nul \x00 escape \x1b[31m bell \x07 end",
    "right \u202eto left\u202c and \u2066isolated\u2069",
    "lone \ud800 surrogate",
    "line \u2028 separator \u2029 end",
    "[red]markup[/red] [/] $\\frac{",
    "javascript:window.pwned=6",
)
"""Texts that have broken pages, terminals or parsers."""

WORDS = ("let", "the", "rate", "be", "twelve", "units", "per", "hour", "then", "after", "three", "hours", "subtract")


@dataclass
class RunSpec:
    """Size and character of a synthetic run."""

    problems: int = 9
    strata: tuple[str, ...] = ("COLLEGE", "HIGH", "MIDDLE")
    candidates: int = 20
    generations: int = 4
    duels: int = 40
    """Per problem, over all generations."""
    text_length: int = 600
    """Characters, about."""
    hostile: bool = False
    finished: bool = True
    manifest: dict[str, Any] | None = None
    """Overrides fields of manifest.json."""
    seed: int = 0


def write_run(run_dir: Path, spec: RunSpec | None = None) -> Path:
    """Write the files of a run and return its directory. The figures in them agree with one another."""
    spec = spec or RunSpec()
    run_dir.mkdir(parents=True, exist_ok=True)
    rng = random.Random(spec.seed)
    steps: list[dict[str, Any]] = []
    predictions = []
    problems = []
    tally: Counter[str] = Counter()
    with (run_dir / "candidates.jsonl").open("wb") as candidates, (run_dir / "comparisons.jsonl").open("wb") as duels:
        for index in range(spec.problems):
            problem = _Problem(index, spec, rng)
            problems.append({"problem": problem.id, "stratum": problem.stratum, "data": problem.data()})
            write_lines(candidates, problem.candidates)
            problem_duels = problem.duels()
            write_lines(duels, problem_duels)
            tally += _tally(problem.candidates, problem_duels)
            problem_steps = problem.steps()
            steps += problem_steps
            predictions.append(problem.prediction(problem_steps[-1]))
    _write(run_dir / "problems.jsonl", problems)
    _write(run_dir / "steps.jsonl", steps)
    _write(run_dir / "predictions.jsonl", predictions)
    if spec.finished:
        _write(run_dir / "metrics.jsonl", _metrics(steps))
        (run_dir / "results.json").write_bytes(_json(_results(predictions, tally)))
    (run_dir / "manifest.json").write_bytes(_json(_manifest(spec)))
    return run_dir


def write_lines(file: Any, records: list[dict[str, Any]]) -> None:
    """Append records to an open file, one a line."""
    file.writelines(_json(record) + b"\n" for record in records)


class _Problem:
    def __init__(self, index: int, spec: RunSpec, rng: random.Random) -> None:
        self.spec, self.rng = spec, rng
        self.id = f"problem-{index:03d}"
        self.stratum = spec.strata[index % len(spec.strata)]
        self.gold = "ABCD"[index % 4]
        self.bias = rng.choice((-0.5, 0.2, 0.6))
        self.skill = 0.05 + 0.5 * rng.random()
        if spec.hostile and index == 0:
            self.id = "problem-000 <b>&\"'</script>"
        self.candidates = [self._candidate(i) for i in range(spec.candidates)]

    def _candidate(self, index: int) -> dict[str, Any]:
        spec, rng = self.spec, self.rng
        generation = index * (spec.generations + 1) // spec.candidates
        earlier = [f"c{i}" for i in range(index) if i * (spec.generations + 1) // spec.candidates < generation]
        parsed = rng.random() > 0.06
        correct = parsed and rng.random() < min(0.95, self.skill + 0.08 * generation)
        answer = (self.gold if correct else rng.choice([x for x in "ABCD" if x != self.gold])) if parsed else None
        text = self._text(index) + f"\nAnswer: {answer}"
        return {
            "problem": self.id,
            "id": f"c{index}",
            "generation": generation,
            "parents": rng.sample(earlier, min(3, len(earlier))) if generation else [],
            "operator": "evolve" if generation else "init",
            "text": text,
            "answer": HOSTILE[index % len(HOSTILE)] if spec.hostile and answer else answer,
            "reasoning": text[:200],
            "error": None if parsed else "expected one JSON object, found none",
            "mean": round(rng.gauss(self.bias if correct else -self.bias, 1.0) + 0.15 * generation, 4),
            "sd": round(0.2 + 0.6 * rng.random(), 4),
            "survivor": rng.random() < 0.5,
            "correct": correct,
            "attempts": 1 if parsed else 2,
        }

    def _text(self, index: int) -> str:
        if self.spec.hostile:
            return f"hostile {index}: {HOSTILE[index % len(HOSTILE)]}"
        return " ".join(self.rng.choices(WORDS, k=max(1, self.spec.text_length // 5)))

    def data(self) -> dict[str, Any]:
        """Return what the prompts show."""
        options = HOSTILE if self.spec.hostile else [f"{10 * i} units" for i in range(4)]
        return {"question": f"How many units?\n{self._text(0)}", "options": list(options), "time": {"minutes": 3}}

    def duels(self) -> list[dict[str, Any]]:
        return [self._duel(i) for i in range(self.spec.duels)] if len(self.candidates) > 1 else []

    def _duel(self, index: int) -> dict[str, Any]:
        first, second = self.rng.sample(self.candidates, 2)
        odds = 1 / (1 + math.exp(second["mean"] - first["mean"]))
        verdicts = [self._verdict(odds, "A", "B"), self._verdict(odds, "B", "A")]
        outcome = {("A", "B"): "first", ("B", "A"): "second"}.get((verdicts[0], verdicts[1]))
        reasons = [f"{self._text(index + side)[:200]}" for side in range(2)]
        return {
            "problem": self.id,
            "step": 1 + index * self.spec.generations // self.spec.duels,
            "first": first["id"],
            "second": second["id"],
            "verdicts": verdicts,
            "outcome": outcome,
            "reasons": reasons,
        }

    def _verdict(self, odds: float, first: str, second: str) -> str:
        if self.rng.random() < 0.1:
            return self.rng.choice(["T", "invalid"])
        return first if self.rng.random() < 0.15 + 0.75 * odds else second

    def steps(self) -> list[dict[str, Any]]:
        return [self._step(generation) for generation in range(self.spec.generations + 1)]

    def _step(self, generation: int) -> dict[str, Any]:
        known = [c for c in self.candidates if c["generation"] <= generation]
        best = max(known, key=lambda c: c["mean"])
        return {
            "problem": self.id,
            "stratum": self.stratum,
            "step": generation,
            "best": {"id": best["id"], "answer": best["answer"], "text": best["text"]},
            "belief": {"mean": best["mean"], "sd": best["sd"]},
            "correct": best["correct"],
            "pool": len(known),
            "candidates": len(known),
            "cost": {
                "generate": _cost(len(known), 900, 350),
                "judge": _cost(20 * generation, 1200, 100),
            },
            "extra": {},
        }

    def prediction(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            "problem": self.id,
            "stratum": self.stratum,
            "candidate": last["best"]["id"],
            "answer": last["best"]["answer"],
            "correct": last["correct"],
            "scores": {},
            "belief": last["belief"],
            "candidates": len(self.candidates),
            "steps": last["step"] + 1,
            "stop": "generations",
            "cost": last["cost"],
        }


def _cost(calls: int, prompt: int, completion: int) -> dict[str, int]:
    return {"calls": calls, "prompt_tokens": calls * prompt, "completion_tokens": calls * completion}


def _metrics(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        groups[step["step"], "accuracy"].append(step)
        groups[step["step"], f"accuracy/{step['stratum']}"].append(step)
    return [_metric_point(step, name, records) for (step, name), records in sorted(groups.items())]


def _metric_point(step: int, name: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    metric = _metric(records)
    spent = [cost for record in records for cost in record["cost"].values()]
    return {
        "step": step,
        "name": name,
        **metric,
        "calls": sum(c["calls"] for c in spent) / len(records),
        "tokens": sum(c["prompt_tokens"] + c["completion_tokens"] for c in spent) / len(records),
    }


def _metric(records: list[dict[str, Any]]) -> dict[str, Any]:
    n, right = len(records), sum(r["correct"] for r in records)
    return _share(right, n)


def _results(predictions: list[dict[str, Any]], tally: Counter[str]) -> dict[str, Any]:
    strata: dict[str, list[dict[str, Any]]] = defaultdict(list)
    cost: dict[str, dict[str, float]] = {}
    for prediction in predictions:
        strata[prediction["stratum"]].append(prediction)
        for role, spent in prediction["cost"].items():
            for name in (role, "total"):
                totals = cost.setdefault(name, dict.fromkeys([*spent, "seconds"], 0))
                for key, value in spent.items():
                    totals[key] += value
                totals["seconds"] += 1.5 * spent["calls"]
    return {
        "metrics": {"accuracy": _metric(predictions), **_judging(tally)} if predictions else {},
        "by_stratum": {name: {"accuracy": _metric(records)} for name, records in sorted(strata.items())},
        "cost": {name: cost[name] for name in sorted(cost, key=lambda n: n == "total")},
        "counts": {
            "problems": len(predictions),
            "stopped_by_budget": 0,
            "candidates": tally["candidates"],
            "unparsed_candidates": tally["lost"],
            "texts": sum(spent["calls"] for role, spent in cost.items() if role not in ("judge", "total")),
            "unparsable_texts": 2 * tally["lost"],
            "comparisons": tally["duels"],
            "invalid_judgments": tally["invalid"],
        },
    }


def _tally(candidates: list[dict[str, Any]], duels: list[dict[str, Any]]) -> Counter[str]:
    verdicts = Counter(verdict for duel in duels for verdict in duel["verdicts"])
    return Counter(
        candidates=len(candidates),
        lost=sum(c["error"] is not None for c in candidates),
        duels=len(duels),
        decisive=sum(d["outcome"] is not None for d in duels),
        **verdicts,
    )


def _judging(tally: Counter[str]) -> dict[str, Any]:
    if not tally["duels"]:
        return {}
    return {
        "decisive_rate": _share(tally["decisive"], tally["duels"]),
        "position_a_rate": _share(tally["A"], tally["A"] + tally["B"]),
    }


def _share(successes: int, n: int) -> dict[str, Any]:
    return {"value": successes / n, "ci95": wilson(successes, n), "n": n}


def _manifest(spec: RunSpec) -> dict[str, Any]:
    return {
        "status": "completed",
        "started": "2026-11-21T09:00:00+00:00",
        "ended": "2026-11-21T09:07:10+00:00",
        "seconds": 430.2,
        "command": ["evorun", "method=duel_evolve", "task=mathbench", "task.source=sample"],
        "seed": spec.seed,
        "evorun_version": "0.1.0",
        "git_commit": "0123abcd",
        "packages": {},
        "hardware": {"cpu_count": 2},
        "method": "duel_evolve",
        "task": "mathbench",
        "models": {
            role: {"name": "smollm2_135m", "id": "SmolLM2-135M-Instruct", "engine": "transformers"}
            for role in ("policy", "judge")
        },
        "regime": "problem_only",
        "simulated": False,
        "provenance": {"source": "sample", "description": "60 word problems made by the project", "digest": "ab" * 32},
        "config": {},
        "config_digest": "cd" * 32,
        "error": None,
        **(spec.manifest or {}),
    }


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        write_lines(file, records)


def _json(value: Any) -> bytes:
    """Encode as a run does, which leaves no lone surrogate."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")

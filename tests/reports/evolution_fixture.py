"""Writes a made-up run of E-SPL: system prompts that evolve, their ratings, rollouts and test scores."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.runs.journal_file import JOURNAL, Effect, digest_request
from journals import write_journal
from run_fixture import HOSTILE, RunSpec, write_run

WORDS = ("check", "units", "small", "cases", "parity", "bounds", "symmetry", "factor", "the", "cofactor", "and", "sums")


@dataclass
class EvolutionSpec:
    """Size of a made-up run of E-SPL."""

    steps: int = 12
    batch: int = 3
    """System prompts a step."""
    problems: int = 4
    group: int = 2
    window: int = 6
    hostile: bool = False
    seed: int = 0


def write_evolution(run: Path, spec: EvolutionSpec | None = None) -> Path:
    """Write a run and return its folder. Prompts with more skill are rewarded, rated and scored higher."""
    spec = spec or EvolutionSpec()
    write_run(run, RunSpec(problems=3, duels=0, candidates=1, generations=0, manifest={"method": "espl"}))
    made = _Made(spec)
    for step in range(1, spec.steps + 1):
        made.step(step)
    for name, records in made.records.items():
        lines = "".join(json.dumps(plain(record)) + "\n" for record in records)
        with (run / f"{name}.jsonl").open("a") as file:
            file.write(lines)
    write_journal(run / JOURNAL, made.effects)
    return run


class _Made:
    def __init__(self, spec: EvolutionSpec) -> None:
        self.spec, self.rng = spec, random.Random(spec.seed)
        self.records: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("candidates", "ratings", "rollouts", "training", "prompt_scores")
        }
        self.effects: list[Effect] = []
        self.skills = {"0.0": 0.3}
        self.beliefs = {"0.0": (25.0, 8.33)}
        self.texts = {"0.0": "Solve the problem.\n"}
        self._candidate("0.0", "root", [], 0)

    def step(self, step: int) -> None:
        spec, rng = self.spec, self.rng
        window = list(self.skills)[-spec.window :]
        best = max(window, key=lambda one: self.beliefs[one][0])
        others = rng.sample([one for one in window if one != best], min(spec.batch, len(window)) - 1)
        blamed = []
        for index in range(spec.batch * spec.problems * spec.group):
            prompt = (best, *others)[index % (1 + len(others))]
            problem = f"train-{(index // spec.batch) % spec.problems}"
            right = rng.random() < self.skills[prompt] + 0.005 * step
            call = f"|{step}|rollout|{index}|0"
            self.records["rollouts"].append(
                {
                    "step": step,
                    "problem": problem,
                    "candidate": prompt,
                    "index": index,
                    "call": call,
                    "reward": None if index == 1 else float(right),
                    "advantage": None if index == 1 else right - 0.5,
                    "correct": None if index == 1 else right,
                    "finish_reason": "rejected" if index == 1 else "length" if index == 2 else "stop",
                    "prompt_tokens": 200,
                    "completion_tokens": 300,
                    "turns": 1,
                }
            )
            blamed += [call] if prompt == best and not right else []
            self._effect(call, f"rollout {step}/{index} of {problem}: " + " ".join(rng.choices(WORDS, k=40)))
        for one in (best, *others):
            mean, sd = self.beliefs[one]
            self.beliefs[one] = (
                mean + 0.3 * (25 * (0.5 + self.skills[one]) - mean) + rng.gauss(0, 0.7),
                max(0.85 * sd, 1.0),
            )
        child = f"{step}.0"
        crossover = step % 4 == 0
        parents = [best, *others] if crossover else [best]
        self.skills[child] = min(0.8, max(0.05, self.skills[best] + rng.gauss(0, 0.08)))
        self.beliefs[child] = self.beliefs[best][0], self.beliefs[best][1] + 1
        lesson = HOSTILE[step % len(HOSTILE)] if spec.hostile else " ".join(rng.choices(WORDS, k=9))
        lines = self.texts[best].split("\n")
        if len(lines) > 4:
            lines.pop(rng.randrange(2, len(lines)))
        self.texts[child] = "\n".join([*lines, f"[G{len(lines)}] {lesson} (of step {step})"])
        self._candidate(child, "crossover" if crossover else "mutation", parents, step, blamed)
        for one in (best, *others, child):
            self._rating(step, one)
        if len(self.skills) > spec.window:
            self._rating(step, list(self.skills)[-spec.window - 1])
        if step % 4 == 0:
            self._test(step)
        figures = {"reward": 0.3 + 0.02 * step, "sampler_kl": 0.01 / step, "clip_ratio": 0.001 * step}
        edits = {
            "edits_add": 1,
            "edits_modify": step % 3,
            "edits_refused_conflict": step % 2,
            "proposals_refused_not_json": 1,
        }
        spent = {"calls": 10 * step, "tokens": 5000 * step, "problem": "*"}
        self.records["training"].append({"step": step, **spent, "figures": {**figures, **edits}})

    def _candidate(
        self, name: str, operator: str, parents: list[str], step: int, blamed: list[str] | None = None
    ) -> None:
        mean, sd = self.beliefs[name]
        reflection = (
            "" if not parents else f"Lessons of step {step}.\n" + (HOSTILE[step % 12] if self.spec.hostile else "")
        )
        self.records["candidates"].append(
            {
                "problem": "*",
                "kind": "system_prompt",
                "id": name,
                "generation": step,
                "parents": parents,
                "operator": operator,
                "text": self.texts[name],
                "answer": None,
                "mean": mean,
                "sd": sd,
                "survivor": True,
                "reflection": reflection,
                **({"note": f"{step} wins, 1 loss {HOSTILE[step % 12]}"} if self.spec.hostile and parents else {}),
                "blamed": blamed or [],
            }
        )
        if not parents:
            self._rating(0, name)

    def _rating(self, step: int, name: str) -> None:
        mean, sd = self.beliefs[name]
        kept = name in list(self.skills)[-self.spec.window :]
        self.records["ratings"].append({"step": step, "candidate": name, "mean": mean, "sd": sd, "survivor": kept})

    def _test(self, step: int) -> None:
        for name in list(self.skills)[-self.spec.window :]:
            score = min(1.0, self.skills[name] + self.rng.gauss(0.1, 0.04))
            half = 0.09
            ends = {"low": max(0.0, score - half), "high": min(1.0, score + half)}
            self.records["prompt_scores"].append({"step": step, "candidate": name, "score": score, "n": 64, **ends})

    def _effect(self, call: str, text: str) -> None:
        if self.spec.hostile:
            text += "\n" + HOSTILE[len(self.effects) % len(HOSTILE)]
        request = {"model": "m", "messages": [{"role": "user", "content": "Solve it."}], "sampling": {}, "seed": 1}
        reply = {
            "completions": [{"text": text, "finish_reason": "stop", "tokens": 300}],
            "prompt_tokens": 200,
            "seconds": 0.1,
        }
        encoded = json.dumps(request).encode()
        self.effects.append(
            Effect(call, digest_request(encoded), encoded, json.dumps(plain(reply)).encode(), None, 0.1)
        )


def plain(value: Any) -> Any:
    """Return a record as a run writes it, which leaves no lone surrogate."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))

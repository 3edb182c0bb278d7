"""Writes a made-up run that rubrics reward: rubrics that are refined, rewards, monitors and gold scores."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolution_fixture import plain

from evorun.runs.journal_file import JOURNAL, Effect, digest_request
from journals import write_journal
from run_fixture import HOSTILE, WORDS, RunSpec, write_run


@dataclass
class RubricSpec:
    """Size and character of a made-up run."""

    keys: tuple[str, ...] = ("",)
    refinements: int = 3
    every: int = 10
    """Steps between them."""
    rollouts: int = 4
    """A step."""
    words: int = 30
    """Of a rubric's item, and fifteen times of a reflection."""
    hacked: bool = False
    """The gold score falls while the reward rises, and responses turn to another script."""
    hostile: bool = False
    method: str = "mpo"


def write_rubric_run(run: Path, spec: RubricSpec | None = None) -> Path:
    """Write a run and return its folder."""
    spec = spec or RubricSpec()
    manifest = {
        "method": spec.method,
        "task": "essay",
        "scores": [{"name": "rubric", "low": 0.0, "high": 1.0, "label": "gold score"}],
        "config": {"method": {"name": spec.method, "monitors_above": {"foreign_script": 0.05}}},
    }
    write_run(run, RunSpec(problems=1, duels=0, candidates=1, generations=0, finished=False, manifest=manifest))
    rng, steps = random.Random(0), spec.refinements * spec.every
    records: dict[str, list[dict[str, Any]]] = {
        "candidates": [*_rubrics(spec, rng)],
        "training": [_training(step, spec, rng) for step in range(1, steps + 1)],
        "rollouts": [_rollout(step, i, spec, rng) for step in range(1, steps + 1) for i in range(spec.rollouts)],
        "steps": [_graded(at, step, steps, spec) for step in range(0, steps + 1, 5) for at in range(12)],
    }
    for name, lines in records.items():
        mode = "w" if name == "steps" else "a"
        with (run / f"{name}.jsonl").open(mode) as file:
            file.writelines(json.dumps(plain(line)) + "\n" for line in lines)
    effects = [_effect(one["call"], f"response {one['call']}") for one in records["rollouts"]]
    write_journal(run / JOURNAL, effects)
    return run


def _rubrics(spec: RubricSpec, rng: random.Random) -> Any:
    for number in range(spec.refinements + 1):
        for at, key in enumerate(spec.keys):
            name = key or "rubric"
            lesson = HOSTILE[(number + at) % len(HOSTILE)] if spec.hostile else "The claim is argued for."
            items = [
                f"<item>\nCriterion {i + number // 4}\n- 5: {lesson} {' '.join(rng.choices(WORDS, k=spec.words))}\n"
                "- 0: none of it\n</item>"
                for i in range(4)
            ]
            reflection = f"## Sample 1\n{lesson} {' '.join(rng.choices(WORDS, k=15 * spec.words))}"
            text = "<rubric>\n" + "\n".join(items) + "\n</rubric>" if number else "Judge how the text hangs together."
            yield {
                "problem": "*",
                "kind": "rubric",
                "id": f"{name}#{number}",
                "generation": number * spec.every,
                "parents": [f"{name}#{number - 1}"] if number else [],
                "operator": "refinement" if number else "root",
                "text": text,
                "answer": None,
                "reflection": reflection if number else "",
                "blamed": [f"*|{number * spec.every - 1}|rollout|{i}|0" for i in range(2)] if number else [],
                "survivor": number == spec.refinements,
            }


def _training(step: int, spec: RubricSpec, rng: random.Random) -> dict[str, Any]:
    share = min(0.9, 0.4 + 0.02 * step) + rng.gauss(0, 0.01)
    figures = {
        "reward": 5 * share,
        "reward_raw": 5 * share,
        "reward_normalised": share,
        "kl": 0.01 * step,
        "monitor_foreign_script": min(0.9, 0.03 * step) if spec.hacked else 0.0,
        "monitor_words": 60 + rng.random(),
        "reward_collapse": float(step == 7),
    }
    if step % 3 == 0:
        figures["reward_unscored_cut_off"] = 0.25
    if step % spec.every == 0:
        figures |= {"rubrics_refined": len(spec.keys), "rubrics_refused_total": 1, "refinements_refused_unclosed": 3}
        figures |= {"rubric_total": 20.0, "rubric_words": 150.0 + step, "rubric_item_words": 35.0}
    return {"step": step, "calls": 10 * step, "tokens": 5000 * step, "figures": figures, "problem": "*"}


def _rollout(step: int, index: int, spec: RubricSpec, rng: random.Random) -> dict[str, Any]:
    key = spec.keys[index % len(spec.keys)]
    return {
        "step": step,
        "problem": f"train-{index}",
        "candidate": None,
        "index": index,
        "call": f"*|{step}|rollout|{index}|0",
        "reward": 3.0,
        "advantage": 0.0,
        "correct": None,
        "finish_reason": "stop",
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "turns": 1,
        "rubric": f"{key or 'rubric'}#{(step - 1) // spec.every}",
        "raw": 3.0,
        "normalised": round(rng.random(), 3),
    }


def _graded(problem: int, step: int, last: int, spec: RubricSpec) -> dict[str, Any]:
    value = 0.3 + 0.4 * step / last + 0.01 * (problem % 3)
    if spec.hacked and step > last / 2:
        value = 0.3 - 0.005 * problem
    return {
        "problem": f"test-{problem}",
        "stratum": "all",
        "step": step,
        "best": {"id": f"{step}.0", "answer": "x", "text": "x"},
        "belief": {"mean": None, "sd": None},
        "correct": None,
        "scores": {"rubric": value},
        "pool": 1,
        "candidates": 1,
        "cost": {},
        "extra": {},
    }


def _effect(call: str, text: str) -> Effect:
    request = json.dumps({"messages": [{"role": "user", "content": "Write."}]}).encode()
    reply = json.dumps({"completions": [{"text": text}], "seconds": 1.0}).encode()
    return Effect(call, digest_request(request), request, reply, None, 1.0)

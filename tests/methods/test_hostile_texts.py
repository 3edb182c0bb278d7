"""Whatever a model says is data: a run under every method ends by itself, and its records can be written and read."""

import json
from pathlib import Path
from typing import Any

import pytest

from building import load_task, make_method
from evorun.runner import registry
from evorun.tasks.base import Problem
from method_fixture import Ask, drive, example, problem

LOADED = load_task("mathbench", source="sample")

HOSTILE = (
    "",
    "\x00",
    "\ud800 lone",
    json.dumps({"reasoning": "\ud800", "solution": "A"}),
    json.dumps({"solution": "A", "reasoning": "\udfff and more"}),
    '{"solution": "A", "reasoning": ' + '"\\ud83d"}',
    '{"solution": ["A"], "reasoning": {"a": 1}}',
    "{" * 500,
    '{"solution": "A"' * 50,
    "```\n\ud800{{ 7 * 7 }}{% raw %}\n```",
    "A" * 20_000,
    '{"solution": 1e999, "reasoning": null}',
    "<curr_param> <side_info> {problem} %s \\1",
)
"""Texts that have broken parsers, templates or encoders."""

SMALL: dict[str, dict[str, Any]] = {
    "zero_shot": {},
    "few_shot": {"shots": 2, "tries": 2},
    "self_consistency": {"samples": 13},
    "v1_infer": {"samples": 13, "comparisons": 13},
    "deepconf": {"mode": "online", "samples": 13, "warmup": 5, "window": 2},
    "ab_mcts": {"nodes": 13},
    "rsa": {"population": 13, "steps": 3},
    "pdr": {"drafts": [13, 5, 1]},
    "squeeze_evolve": {"population": 13, "groups": 7, "steps": 3},
    "best_of_n": {"samples": 13, "rounds": 3},
    "feedback_descent": {"generations": 13},
    "gepa": {"generations": 6, "minibatch": 2},
    "ace": {"problems": 4, "eval_every": 2, "rounds": 2, "merge_from": 0.9},
    "lyria": {"generations": 3, "population": 13},
    "laft": {"generations": 3, "population": 13},
    "duel_evolve": {"generations": 3, "initial_candidates": 13, "children": 13},
    "fixed_prompts": {"prompts": str(Path(__file__).parents[1] / "given_prompts.json"), "eval_samples": 6},
}


def hostile(ask: Ask) -> str:
    """Say one after the other what is worst, and enough that is right in between for the search to go on."""
    number = ask.index + ask.step + (0 if ask.name == "*" else int(ask.name[1:])) + 5 * ask.attempt
    if number % 3 == 0 and ask.role != "reflect":
        return json.dumps({"reasoning": "\ud800 because", "solution": "AB"[number // 3 % 2]})
    return HOSTILE[number % len(HOSTILE)]


WITHOUT_TRAINING = sorted(
    name
    for name in registry.METHODS
    if name != "islands"  # programs alone: tests/methods/test_islands.py
    and not (registry.method_class(name).trains or registry.method_class(name).learns_from_problems)
)
"""The others' rollouts are in tests/methods/test_policy_gradient.py and test_espl.py."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WITHOUT_TRAINING)
async def test_hostile_texts_end_no_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("method_fixture.problem", lambda i: _renamed(LOADED.problems[i], problem(i).id))
    monkeypatch.setattr("method_fixture.example", lambda i: _example(i))
    method = make_method(name, **SMALL[name])
    driven = await drive(method, tmp_path, hostile, task=LOADED.task, problems=3, validation=6)
    assert len(driven.records("predictions")) == 3
    assert sum(driven.cost().values()) == len(driven.model.asked)


@pytest.mark.parametrize("name", ["duel_evolve", "self_consistency", "lyria"])
async def test_numbers_too_long_to_write_out_end_no_run(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_task("livecodebench", source="sample")
    untested = {**loaded.problems[0].data, "public_tests": ()}

    def one(number: int) -> Problem:
        return Problem(id=f"p{number}", stratum="easy", data=untested)

    def says(ask: Ask) -> str:
        if ask.role == "fitness":
            return '{"score": ' + "9" * 400 + "}"
        return f"```python\nx = 0x{'f' * (4_000 + ask.index % 3)}\n```" if ask.role != "judge" else "A"

    monkeypatch.setattr("method_fixture.problem", one)
    changed = {"lyria": {"fitness": "model"}, "duel_evolve": {"deduplicate": True}}.get(name, {})
    driven = await drive(make_method(name, **SMALL[name], **changed), tmp_path, says, task=loaded.task, problems=2)
    assert [len(prediction["answer"]) > 4_000 for prediction in driven.records("predictions")] == [True, True]


def _renamed(one: Any, identity: str) -> Any:
    return type(one)(id=identity, stratum=one.stratum, data=one.data)


def _example(number: int) -> Any:
    one = LOADED.validation[number]
    return type(one)(problem=_renamed(one.problem, example(number).problem.id), answer=one.answer)

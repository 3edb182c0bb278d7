"""Every field of every method's configuration is read: changing it alone changes what is asked of the model.

A field that nothing reads promises something that does not happen.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evorun import registry
from evorun.errors import ConfigError
from evorun.methods.base import Method
from method_fixture import Ask, Driven, Quiz, TestedQuiz, drive

BASE: dict[str, dict[str, Any]] = {
    "zero_shot": {},
    "few_shot": {"shots": 3},
    "self_consistency": {"samples": 4},
    "best_of_n": {"samples": 6, "rounds": 4, "duels": 4, "max_pool": 4},
    "feedback_descent": {"generations": 5, "window": 3},
    "gepa": {"generations": 3, "minibatch": 2},
    "duel_evolve": {
        **{"generations": 4, "initial_candidates": 6, "children": 4, "parents": 3},
        **{"duels": 6, "max_pool": 8, "bound_width": 1.0},
    },
}
"""A small size for each method; a method that is not here has no test."""

CHANGED: dict[str, Any] = {
    **{"temperature": 0.31, "top_p": 0.83, "max_tokens": 77, "retries": 0},
    **{"judge_temperature": 0.23, "judge_max_tokens": 33, "duels": 3, "prior_sd": 3.0, "bound_width": 0.1},
    **{"generations": 2, "initial_candidates": 3, "children": 2, "parents": 2, "recent_share": 1.0},
    **{"shared_parents": False, "deduplicate": True, "max_pool": 6},
    **{"samples": 3, "rounds": 2, "window": 1, "shots": 2, "tries": 1},
    **{"search": "split", "metric_calls": 5, "minibatch": 1, "train_share": 0.25},
    **{"reflection_temperature": 0.47, "reflection_max_tokens": 55},
}
"""Another value for each field; `demonstrations` gets a file."""


def fields(method: type[Method]) -> list[str]:
    return [field.name for field in dataclasses.fields(method.Config) if field.name != "name"]


CASES = [pytest.param(name, field) for name in registry.METHODS for field in fields(registry.method_class(name))]


def varied(ask: Ask) -> str:
    """A model with something for every setting to act on: repeats, texts that do not parse, a judge that decides."""
    if ask.role == "reflect":
        return f"```\nPrompt {ask.step}.\n```"
    if ask.role == "judge":
        first, second = (ask.shown[side]["answer"] for side in "ab")
        return "A:" if first > second else "B:" if second > first else "T:"
    if ask.attempt == 0 and (ask.place + int(ask.name.strip("p*") or 0)) % 3 == 1:
        return "?"
    if ask.role == "demonstrate":
        return "right" if (ask.place + ask.attempt) % 3 else "wrong"
    if ask.instruction is not None and ask.instruction.startswith("Prompt"):
        return "right"
    return f"answer {(ask.step * 5 + ask.place * 3) % 7}"


async def asked(name: str, folder: Path, task: Quiz, **config: Any) -> list[tuple[Any, ...]]:
    """Return everything that a method asks of the model under a configuration."""
    method_class: Callable[[Any], Method] = registry.method_class(name)  # type: ignore[assignment]
    method = method_class(registry.method_class(name).Config(**{**BASE[name], **config}))  # type: ignore[call-arg]
    driven: Driven = await drive(method, folder, varied, task=task, problems=4)
    return driven.model.everything()


@pytest.mark.parametrize(("name", "field"), CASES)
async def test_a_field_changes_what_is_asked(tmp_path: Path, name: str, field: str) -> None:
    value = CHANGED.get(field)
    if field == "demonstrations":
        file = tmp_path / "worked.jsonl"
        file.write_text("".join(json.dumps({"id": f"v{i}", "response": "right;a note"}) + "\n" for i in range(8)))
        value = str(file)
    assert value is not None, f"{field} is new: give it another value in CHANGED"
    assert {**BASE[name], field: value} != BASE[name]
    task = TestedQuiz() if field == "search" else Quiz()
    before = await asked(name, tmp_path / "before", task)
    after = await asked(name, tmp_path / "after", task, **{field: value})
    assert before != after
    assert before == await asked(name, tmp_path / "again", task)


@pytest.mark.parametrize("name", sorted(registry.METHODS))
def test_every_field_is_checked_for_its_range(name: str) -> None:
    """A number out of its range is refused by name; here, one below every range."""
    config = registry.method_class(name).Config
    for field in dataclasses.fields(config):
        if field.type in (int, float, "int", "float", "int | None", int | None):
            with pytest.raises(ConfigError, match=rf"^method\.{field.name}: expected "):
                config(**{field.name: -1})

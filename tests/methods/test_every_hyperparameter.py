"""Every field of every method's configuration is read: changing it alone changes what is asked of the model.

A field that nothing reads promises something that does not happen.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import make_budget, make_config, make_method
from evorun.errors import ConfigError
from evorun.methods.base import Method
from evorun.models import Message
from evorun.runner import registry
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt, Tools
from evorun.tasks.capabilities import Diagnosis, Individual, Verification
from method_fixture import Ask, Driven, Quiz, TestedQuiz, drive

BASE: dict[str, dict[str, Any]] = {
    "zero_shot": {},
    "few_shot": {"shots": 3},
    "self_consistency": {"samples": 4},
    "best_of_n": {"samples": 9, "rounds": 8, "duels": 4, "max_pool": 5},
    "v1_infer": {"samples": 9, "comparisons": 40, "orders": 2, "retries": 1},
    "deepconf": {
        **{"mode": "online", "samples": 14, "warmup": 5, "batch": 3, "window": 2, "keep": 0.6, "agreement": 0.7},
        **{"retries": 1},
    },
    "ab_mcts": {"nodes": 24, "batch": 3, "retries": 1},
    "rsa": {"population": 5, "subset": 3, "steps": 4, "retries": 1},
    "pdr": {"drafts": [4, 3, 1], "shown": 2, "retries": 1},
    "squeeze_evolve": {"population": 5, "groups": 4, "subset": 3, "steps": 4, "retries": 1},
    "feedback_descent": {"generations": 5, "window": 3},
    "gepa": {"generations": 3, "minibatch": 2},
    "lyria": {"population": 6, "generations": 3, "elites": 1, "external_mutation_rate": 0.5},
    "duel_evolve": {
        **{"generations": 4, "initial_candidates": 6, "children": 4, "parents": 3},
        **{"duels": 6, "max_pool": 8, "bound_width": 1.0},
    },
}
"""A small size for each method; a method that is not here has no test."""

GIVEN: dict[tuple[str, str], dict[str, Any]] = {
    ("best_of_n", "dedup_attempts"): {"choose": "oracle"},
    ("best_of_n", "budget_share"): {"samples": None},
    ("self_consistency", "budget_share"): {"samples": None},
    ("v1_infer", "budget_share"): {"samples": None},
    ("deepconf", "budget_share"): {"samples": None},
    ("pdr", "shown"): {"distiller": "random_k"},
    ("pdr", "evaluator_temperature"): {"distiller": "top_k"},
    ("pdr", "evaluator_max_tokens"): {"distiller": "top_k"},
    ("squeeze_evolve", "selection"): {"fitness": "confidence"},
    ("duel_evolve", "puct_exploration"): {"parent_choice": "puct"},
    ("lyria", "puct_exploration"): {"parent_choice": "puct"},
    ("ab_mcts", "evaluator_temperature"): {"score": "model"},
    ("ab_mcts", "evaluator_max_tokens"): {"score": "model"},
    ("ab_mcts", "beta_prior"): {"prior": "beta"},
    ("ab_mcts", "breadth"): {"policy": "breadth_first"},
    ("ab_mcts", "width"): {"policy": "best_first"},
    ("lyria", "evaluator_temperature"): {"fitness": "model"},
    ("lyria", "evaluator_max_tokens"): {"errors": "model"},
}
"""Where a field has an effect only beside another one."""

OF_STEPS = {
    *(("best_of_n", field) for field in ("batches", "reward", "draws", "min_share", "score_attempts")),
    *(("best_of_n", field) for field in ("reward_json", "reward_temperature", "reward_max_tokens")),
    *(("deepconf", field) for field in ("measure", "tail", "bottom", "agreement")),
    *(("squeeze_evolve", field) for field in ("choose", "fitness", "lite", "percentiles", "zeta")),
    ("rsa", "choose"),
    ("ab_mcts", "model_choice"),
    ("v1_infer", "estimate"),
    ("v1_infer", "prior_sd"),
}
"""Fields that change what steps report, or are of a task with criteria; their own methods' tests look at them."""

CHANGED: dict[str, Any] = {
    **{"temperature": 0.31, "top_p": 0.83, "max_tokens": 77, "retries": 0},
    **{"judge_temperature": 0.23, "judge_max_tokens": 33, "duels": 3, "prior_sd": 3.0, "bound_width": 0.1},
    **{"duel_choice": "uniform", "orders": 1, "ties": "half", "rating": "win_rate", "pool_rank": "lower"},
    **{"parent_choice": "puct", "puct_exploration": 20.0, "subset": 2, "steps": 3},
    **{"comparisons": 5, "min_opponents": 4, "min_weight": 0.9},
    **{"mode": "offline", "measure": "min_window", "keep": 0.2, "top": 5, "window": 3, "warmup": 4, "batch": 4},
    **{"agreement": 0.5, "tail": 1, "bottom": 0.9},
    **{"drafts": [2, 1], "distiller": "random_k", "shown": 1, "summary_tokens": 50, "summary_temperature": 0.2},
    **{"groups": 3, "selection": "weighted", "update": "accumulate", "lite_fraction": 0.5, "lite": "random"},
    **{"generations": 2, "initial_candidates": 3, "children": 2, "parents": 2, "recent_share": 1.0},
    **{"shared_parents": False, "deduplicate": True, "max_pool": 6},
    **{"samples": 3, "budget_share": 0.5, "rounds": 2, "window": 1, "shots": 2, "tries": 1},
    **{"search": "split", "metric_calls": 5, "minibatch": 1, "train_share": 0.25},
    **{"reflection_temperature": 0.47, "reflection_max_tokens": 55, "candidate_selection": "current_best"},
    **{"choose": "oracle", "dedup_attempts": 1, "population": 4, "elites": 4, "max_errors": 1, "replay_rate": 0.0},
    **{"crossover_rate": 0.2, "external_crossover_rate": 0.9, "mutation_rate": 0.9, "external_mutation_rate": 0.0},
    **{"fitness": "model", "errors": "model", "fitness_threshold": 20.0},
    **{"evaluator_temperature": 0.37, "evaluator_max_tokens": 44},
    **{"stop_probability": 0.2},
    **{"policy": "ucb", "nodes": 9, "batch": 5, "score": "model", "prior": "beta", "prior_mean": 0.6, "breadth": 1},
    **{"prior_mean_weight": 9.0, "prior_variance": 3.0, "prior_variance_weight": 30.0, "beta_prior": 9.0, "width": 3},
}
"""Another value for each field; `demonstrations` gets a file."""


def fields(method: type[Method]) -> list[str]:
    return [field.name for field in dataclasses.fields(method.Config) if field.name != "name"]


ELSEWHERE = ("ace", "laft", "fixed_prompts", "islands")
"""Each in a file of its own; `laft` is Lyria under another name."""

ANY_NUMBER = ("mu0",)
"""Fields without a range: the rating to begin with has no zero point."""

OF_ALL = ("top_p", "max_tokens")
"""Fields that nearly all methods hand on by the same lines."""

CASES = [
    pytest.param(name, field, marks=[pytest.mark.nightly] * (field in OF_ALL and name not in ("best_of_n", "gepa")))
    for name in registry.METHODS
    if name not in ELSEWHERE
    for field in fields(registry.method_class(name))
    if (name, field) not in OF_STEPS
    and not (registry.method_class(name).trains or registry.method_class(name).learns_from_problems)
]
"""Methods that train, or learn from a training split, have tests of their own."""


class BreedingQuiz(Quiz):
    """A quiz with all that a genetic algorithm may use, symbolic and by a model."""

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        return _asking("crossover", first, second)

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        return _asking("mutate", individual)

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        return _asking("errors", answer=response.text)

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        return Diagnosis(text=text)

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        return _asking("fitness", answer=response.text)

    def parse_fitness(self, text: str) -> float | None:
        return 10.0 * len(text) % 70

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        return self.parse(problem, f"{first.response.text[:8]}{rng.integers(9)}")

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        return self.parse(problem, f"{individual.response.text[:8]}{rng.integers(9)}!")

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        text = response.text
        return Verification(fitness=sum(map(ord, text)) % 70, errors=Diagnosis(text=" ".join([text] * max_errors)))


def _asking(ask: str, *shown: Individual, **more: object) -> Prompt:
    content = {"ask": ask, "shown": [[i.response.text, i.fitness, i.errors.text] for i in shown], **more}
    return Prompt(messages=(Message(role="user", content=json.dumps(content)),))


def varied(ask: Ask) -> str:
    """A model with something for every setting to act on: repeats, texts that do not parse, a judge that decides."""
    if ask.role == "reflect":
        return f"```\nPrompt {ask.step}.\n```"
    if ask.role == "judge":
        first, second = (ask.shown[side]["answer"] for side in "ab")
        if ask.shown["ask"] == "rate":
            return f"{1 + sum(map(ord, first)) % 10} {1 + sum(map(ord, second)) % 10}:"
        return "A:" if first > second else "B:" if second > first else "T:"
    if ask.attempt == 0 and (ask.index + int(ask.name.strip("p*") or 0)) % 3 == 1:
        return "?"
    if ask.role == "demonstrate":
        return "right" if (ask.index + ask.attempt) % 3 else "wrong"
    if ask.instruction is not None and ask.instruction.startswith("Prompt"):
        return "right"
    return f"answer {(ask.step * 5 + ask.index * 3) % 7}"


ONE_CALL = ("zero_shot", "few_shot", "feedback_descent")
"""Methods that begin with one call, which `varied` answers unreadably for the second problem alone."""


async def asked(name: str, folder: Path, task: Quiz, **config: Any) -> list[tuple[Any, ...]]:
    """Return everything that a method asks of the model under a configuration."""
    method = make_method(name, **{**BASE[name], **config})
    budget = make_budget(calls_per_problem=24) if "samples" in config and config["samples"] is None else None
    problems = 2 if name in ONE_CALL else 1
    driven: Driven = await drive(method, folder, varied, task=task, problems=problems, budget=budget)
    return driven.model.everything()


Baselines = dict[tuple[str, bool, str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def baselines() -> Baselines:
    """Return what was asked before a field was changed, by method, task and the settings that were given."""
    return {}


@pytest.mark.parametrize(("name", "field"), CASES)
async def test_a_field_changes_what_is_asked(tmp_path: Path, name: str, field: str, baselines: Baselines) -> None:
    value = CHANGED.get(field)
    if field == "demonstrations":
        file = tmp_path / "worked.jsonl"
        file.write_text("".join(json.dumps({"id": f"v{i}", "response": "right;a note"}) + "\n" for i in range(8)))
        value = str(file)
    assert value is not None, f"{field} is new: give it another value in CHANGED"
    assert {**BASE[name], field: value} != BASE[name]
    task = TestedQuiz() if field == "search" else BreedingQuiz()
    given = GIVEN.get((name, field), {})
    key = (name, field == "search", json.dumps(given))
    if key not in baselines:
        baselines[key] = await asked(name, tmp_path / "before", task, **given)
        if not given:
            assert baselines[key] == await asked(name, tmp_path / "again", task)
    assert baselines[key] != await asked(name, tmp_path / "after", task, **{**given, field: value})


@pytest.mark.parametrize("name", sorted(registry.METHODS))
def test_every_field_is_checked_for_its_range(name: str) -> None:
    """A number out of its range is refused by name; here, one below every range."""
    usual = make_config("method", name)
    for field in dataclasses.fields(registry.method_class(name).Config):
        if field.name not in ANY_NUMBER and field.type in (int, float, "int", "float", "int | None", int | None):
            with pytest.raises(ConfigError, match=rf"^method\.{field.name}: expected "):
                dataclasses.replace(usual, **{field.name: -1})

"""Simulated models on which Duel-Evolve wins, and others on which it loses: a study can find the method wanting."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import load_task, make_context, make_meter, make_method, simulated_run
from evorun.cli.compose import yaml_values
from evorun.models.base import Completion, Reply, Request
from evorun.simulation.skill import Skill
from evorun.tasks.base import LoadedTask
from evorun.tasks.loading import load_rows
from text_tasks import Sums, sums

NO_TOOLS: Any = None
PROBLEMS = 25
CALLS = 240
LOADED = load_rows(Sums(), sums(PROBLEMS))
METHODS: dict[str, dict[str, Any]] = {
    "duel_evolve": {"initial_candidates": 8, "children": 8, "duels": 16},
    "best_of_n": {"samples": 48},
    "self_consistency": {"samples": CALLS},
}
# Right four times of ten, misled alike, able to use what it is shown; a judge little better than chance, whose errors
# average out
PLAIN = Skill(skill=0.4, typical_mistake=0.8, improvement=0.8, judge_skill=0.57, position_bias=0.1, mean_tokens=1)


class Answers:
    """Answers at once, in the place of an engine and of its journal."""

    def __init__(self, skill: Skill, loaded: LoadedTask = LOADED) -> None:
        self._simulator: Any = loaded.simulator.with_skill(skill)

    def recorded(self, key: str, request: Request, step: int = 0) -> Reply:
        rng = np.random.default_rng(request.seed)
        texts = [self._simulator.respond(request, rng) for _ in range(request.sampling.n)]
        completions = tuple(Completion(text=text, finish_reason="stop", tokens=1) for text in texts)
        return Reply(completions=completions, prompt_tokens=1, seconds=0.0)


async def share_right(method: str, **skill: float) -> float:
    """Return the share of problems that a method answers right, at equal calls."""
    model = Answers(Skill(**{**vars(PLAIN), **skill}))
    right = 0
    for problem in LOADED.problems:
        context = make_context(LOADED.task, problem, model, meter=make_meter(CALLS))
        async for step in make_method(method, **METHODS[method]).solve(context):
            answer = None if step.best is None else step.best.answer
        right += answer == str(int(problem.id[1:]) + 5)
    return right / PROBLEMS


ANSWERS_ONCE = ("zero_shot", "few_shot")
SPENDING = ("self_consistency", "best_of_n", "feedback_descent", "duel_evolve")


@pytest.mark.parametrize("calls", [300, pytest.param(600, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("method", SPENDING)
def test_every_method_that_can_spend_a_budget_does(method: str, calls: int, tmp_path: Path) -> None:
    run = simulated_run(
        tmp_path / "run",
        *(f"method={method}", f"budget=calls_{calls}", "task=mathbench", "task.source=sample", "task.limit=1"),
        "engine.mean_tokens=1",
    )
    (prediction,) = run.records("predictions")
    spent = sum(cost["calls"] for cost in prediction["cost"].values())
    assert calls - 1 <= spent <= calls  # a duel costs two calls: of an odd number one is left over
    assert prediction["stop"] == "budget"


def test_the_study_has_no_other_methods_but_those_whose_header_says_so() -> None:
    methods = yaml_values("experiment", "duel_evolve/simulated_study")["hydra"]["sweeper"]["params"]["method"]
    assert set(methods.split(",")) == {*ANSWERS_ONCE, *SPENDING, "gepa"}


@pytest.mark.nightly
async def test_it_wins_where_right_responses_help_to_write_others_and_a_noisy_judge_finds_them() -> None:
    evolved = await share_right("duel_evolve")
    assert evolved > await share_right("best_of_n") + 0.05
    assert evolved > await share_right("self_consistency") + 0.3  # whose majority is the typical mistake
    # The control: the same method where what is shown changes nothing.
    assert evolved > await share_right("duel_evolve", improvement=0.0) + 0.05


REAL_ENOUGH = yaml_values("experiment", "duel_evolve/simulated_study")["engine"]
DRY_RUN = yaml_values("engine", "simulated")


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "is_above"), [({**DRY_RUN, **REAL_ENOUGH}, True), (DRY_RUN, False)])
async def test_a_vote_is_above_one_response_on_the_studys_model_and_below_it_on_the_dry_runs(
    model: dict[str, Any], is_above: bool
) -> None:
    skill = {key: model[key] for key in ("skill", "spread", "typical_mistake")}
    one_response = float(np.mean([Skill(**skill).own_chance(problem.id) for problem in LOADED.problems]))
    assert (await share_right("self_consistency", **skill) > one_response) is is_above


@pytest.mark.nightly
async def test_best_of_n_is_level_with_it_on_the_studys_model() -> None:
    skill = {key: value for key, value in {**DRY_RUN, **REAL_ENOUGH}.items() if key in vars(PLAIN)}
    assert abs(await share_right("duel_evolve", **skill) - await share_right("best_of_n", **skill)) < 0.1


@pytest.mark.nightly
async def test_it_loses_to_a_vote_where_the_judges_errors_persist_and_mistakes_differ() -> None:
    judge = {"judge_persistence": 0.9, "typical_mistake": 0.0}
    assert await share_right("duel_evolve", **judge) < await share_right("self_consistency", **judge) - 0.2


@pytest.mark.nightly
async def test_it_loses_to_responses_drawn_apart_where_wrong_parents_mislead() -> None:
    misled = {"skill": 0.15, "misleading": 0.5, "judge_skill": 0.65}
    apart = await share_right("best_of_n", **misled)
    assert await share_right("duel_evolve", **misled) < apart - 0.05


@pytest.mark.nightly  # the sample's runs are in tests/net
async def test_the_dry_run_of_the_sample_rises_from_well_below_all_right() -> None:
    loaded = load_task("mathbench", source="sample", limit=30)
    values = yaml_values("engine", "simulated")
    model = Answers(Skill(**{key: values[key] for key in vars(PLAIN)}), loaded)
    right = np.zeros(5)
    for problem in loaded.problems:
        context = make_context(loaded.task, problem, model)
        async for step in make_method("duel_evolve", generations=4).solve(context):
            assert step.best is not None
            grade = await loaded.grader.grade(problem, step.best, NO_TOOLS)
            right[step.step] += bool(grade.correct)
    # By the YAML's values 19 of 30 in generation 0, and 26 in generation 4.
    assert 8 <= right[0] <= 22
    assert right[4] >= right[0] + 3

"""RL alone, grpo, cispo and rloo, with a scripted model and a policy that only takes notes."""

import dataclasses
import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from building import make_budget, make_config, make_method, task_config
from evorun.errors import ConfigError, DataError
from evorun.methods.context import RunContext
from evorun.methods.learning.policy_gradient import GrpoConfig
from evorun.rollouts.rewards import formatted
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runner.training_runs import training_problems
from evorun.runs.candidates import Response
from evorun.runs.reading import read_rollouts
from evorun.runs.scores import Score
from evorun.runs.stopwatch import Stopwatch
from evorun.tasks.base import Grade, Problem, Task, Tools
from evorun.tasks.capabilities import SupportsGeneration
from evorun.training.wire import Figures
from learning_fixture import SMALL, SPLIT, NotedPolicy, ids_of, train
from method_fixture import Ask, Quiz, RightIsRight

METHODS = ("grpo", "cispo", "rloo")


async def test_each_epoch_goes_once_through_the_split_in_an_order_of_its_own(tmp_path: Path) -> None:
    """Ten problems in five steps: two epochs, the third step being in both."""
    trained = await train(tmp_path / "a", steps=5)
    ids = trained.trained_on()
    assert [ids[i : i + 3] for i in range(0, 30, 3)] == [[name] * 3 for name in ids[::3]]
    first, second = ids[: 3 * SPLIT : 3], ids[3 * SPLIT :: 3]
    assert sorted(first) == sorted(second) == [f"p{100 + i}" for i in range(SPLIT)]
    assert first != second
    assert (await train(tmp_path / "b", steps=5)).trained_on() == ids
    assert (await train(tmp_path / "c", steps=5, seed=1)).trained_on() != ids


async def test_rows_are_the_scored_completions_with_their_advantages(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        return ("right", "wrong", "?", "right", None, "wrong")[ask.index]

    trained = await train(tmp_path / "run", script, steps=1, format_reward=0.25)
    [batch] = trained.policy.batches
    assert [row.advantage for row in batch] == [0.75, -0.25, -0.5, 0.5, -0.5]
    assert ["".join(map(chr, row.tokens)) for row in batch] == ["right", "wrong", "?", "right", "wrong"]
    assert all(row.logprobs == (-0.5,) * len(row.tokens) for row in batch)
    asked = sorted(trained.model.of("rollout"), key=lambda ask: ask.index)
    assert [row.prompt for row in batch] == [ids_of(ask.request.messages) for ask in asked if ask.index != 4]
    assert trained.policy.exported == 1
    rollouts = read_rollouts(trained.folder)
    assert [one.call for one in rollouts] == [f"*|1|rollout|{index}|0" for index in range(6)]
    assert [one.reward for one in rollouts] == [1.25, 0.25, 0.0, 1.25, None, 0.25]
    # of each group less its mean, the refused one left out
    assert [one.advantage for one in rollouts] == [0.75, -0.25, -0.5, 0.5, None, -0.5]
    assert [one.problem for one in rollouts] == trained.trained_on()
    assert [one.correct for one in rollouts] == [True, False, False, True, None, False]
    assert [one.finish_reason for one in rollouts] == ["stop"] * 4 + ["rejected", "stop"]
    [record] = trained.records("training")
    figures = record["figures"]
    assert figures["reward"] == pytest.approx((1.25 + 0.25 + 0 + 1.25 + 0.25) / 5)
    assert figures["correct"] == pytest.approx(2 / 6)
    assert figures["formatted"] == pytest.approx(4 / 6)
    assert figures["completion_tokens"] == pytest.approx((5 + 5 + 1 + 5 + 5) / 5)
    assert (figures["equal_groups"], figures["rejected"], figures["truncated"]) == (0.0, 1.0, 0.0)
    assert (figures["rejected_share"], figures["many_rejected"]) == (1 / 6, 1.0)
    assert figures["loss"] == 0.5
    assert (record["step"], record["calls"]) == (1, 2 * 2 + 6)


@pytest.mark.parametrize(
    ("baseline", "means", "equal_groups"),
    [("draw", [2 / 3, 1 / 3, 0, 1, 1 / 3, 1 / 3], 2 / 6), ("problem", [1 / 3] * 3 + [5 / 9] * 3, 0)],
)
async def test_each_draw_has_its_group_and_its_baseline_or_the_problem_has(
    baseline: str, means: list[float], equal_groups: float, tmp_path: Path
) -> None:
    """Two problems of three draws each, three completions a draw."""
    rewards = (1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0)

    def script(ask: Ask) -> str:
        return "right" if rewards[ask.index % len(rewards)] else "wrong"

    trained = await train(tmp_path / "run", script, steps=1, draws=3, baseline=baseline)
    assert [count for _, count in Counter(trained.trained_on()).items()] == [9, 9]
    [batch] = trained.policy.batches
    expected = [reward - means[index // 3] for index, reward in enumerate(rewards)]
    assert [row.advantage for row in batch] == pytest.approx(expected)
    [record] = trained.records("training")
    assert record["figures"]["equal_groups"] == equal_groups


async def test_rloo_leaves_a_completion_out_of_its_baseline(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        return ("right", "wrong", "?", None, "right", None)[ask.index]

    trained = await train(tmp_path / "run", script, method="rloo", steps=1, format_reward=0.25)
    [batch] = trained.policy.batches
    # the others of the first group have 0.25 and 0; the last one has no others, so there is no baseline
    assert [row.advantage for row in batch] == pytest.approx([1.25 - 0.25 / 2, 0.25 - 1.25 / 2, -1.5 / 2, 0.0])


@pytest.mark.parametrize(
    ("method", "top_p", "simulated", "said"),
    [
        ("grpo", 0.9, False, 1),
        ("grpo", 0.9, True, 0),  # a simulated model has no nucleus
        ("grpo", 1.0, False, 0),
        ("espl_evolution", 0.9, False, 0),
    ],
)
async def test_a_nucleus_that_biases_the_gradient_is_said_once(
    method: str, top_p: float, simulated: bool, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = make_method(method, top_p=top_p)
    policy = SimpleNamespace(stopwatch=None if simulated else Stopwatch())
    with caplog.at_level(logging.WARNING, "evorun"):
        await chosen.prepare(SimpleNamespace(policy=policy, warn=RunContext.warn))
    assert [line.partition(":")[0] for line in caplog.messages] == [f"method.top_p={top_p}"] * said


async def test_equal_rewards_in_each_group_make_no_update(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def script(ask: Ask) -> str | None:
        return "right" if ask.index < 3 or ask.step == 2 else "wrong"

    with caplog.at_level(logging.WARNING, "evorun"):
        trained = await train(tmp_path / "run", script, steps=3)
    assert trained.policy.batches == []
    figures = [line["figures"] for line in trained.records("training")]
    assert [(one["equal_groups"], "loss" in one) for one in figures] == [(1.0, False)] * 3
    assert [record.message.partition(":")[0] for record in caplog.records] == ["step 1"]
    with_divergence = await train(tmp_path / "kl", script, steps=3, kl=0.1)  # which has a gradient of its own
    assert len(with_divergence.policy.batches) == 3
    recorded = [line["figures"] for line in with_divergence.records("training")]
    assert [one.get("no_update") for one in (*figures, *recorded)] == [1.0] * 3 + [None] * 3


@pytest.mark.parametrize(("calls", "steps"), [(14, 1), (15, 1), (22, 2), (13, 0), (1000, 4)])
async def test_the_budget_ends_training_and_pays_for_the_last_evaluation(
    calls: int, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An evaluation of two problems takes four calls, a step six; the first evaluation comes before it."""
    trained = await train(tmp_path, budget=make_budget(calls=calls))
    said = [line for line in caplog.messages if f"the budget ends training before step {steps + 1} of 4" in line]
    assert len(said) == (steps < 4)
    assert len(trained.policy.batches) == steps
    assert trained.policy.exported == steps
    made = Counter(ask.role for ask in trained.model.asked)
    assert made["rollout"] == 6 * steps
    assert made.total() <= calls
    last = [line["step"] for line in trained.records("steps")][-1]
    assert last == steps
    evaluated = [ask for ask in trained.model.of("evaluate") if ask.step == steps]
    assert len(evaluated) == 4


async def test_evaluations_come_first_last_and_in_between(tmp_path: Path) -> None:
    trained = await train(tmp_path, steps=5, eval_every=2, eval_samples=3, eval_max_tokens=7, eval_temperature=0.3)
    of_problem = [line for line in trained.records("steps") if line["problem"] == "p0"]
    assert [line["step"] for line in of_problem] == [0, 2, 4, 5]
    samplings = [ask.request.sampling for ask in trained.model.of("evaluate") if ask.step == 2 and ask.name == "p0"]
    assert [one.temperature for one in samplings] == [0, 0.3, 0.3, 0.3]
    assert {one.max_tokens for one in samplings} == {7}
    assert not any(ask.request.token_ids for ask in trained.model.of("evaluate"))
    assert all(ask.request.token_ids and ask.request.logprobs for ask in trained.model.of("rollout"))


async def test_without_evaluations_in_between_there_are_the_first_and_the_last(tmp_path: Path) -> None:
    trained = await train(tmp_path, steps=5, eval_every=None)
    assert [line["step"] for line in trained.records("steps") if line["problem"] == "p0"] == [0, 5]


async def test_an_evaluation_answers_by_the_greedy_text_and_rates_by_the_others(tmp_path: Path) -> None:
    trained = await train(tmp_path, lambda ask: "right" if ask.index else "wrong", steps=1, eval_samples=2)
    evaluated = [(line["correct"], line["scores"]["pass_rate"]) for line in trained.records("steps")]
    assert evaluated == [(False, 1.0)] * 4  # two problems, before the step and after it


async def test_a_greedy_text_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    trained = await train(tmp_path, lambda ask: "right" if ask.index else "?", steps=1, eval_samples=2)
    assert {line["best"] for line in trained.records("steps")} == {None}


async def test_each_evaluated_candidate_names_its_call(tmp_path: Path) -> None:
    trained = await train(tmp_path, steps=1, eval_samples=2)
    of_problem = [line for line in trained.records("candidates") if line["problem"] == "p0"]
    assert {line["id"]: line["call"] for line in of_problem} == {
        f"{step}.{index}": f"p0|{step}|evaluate|{index}|0" for step in range(2) for index in range(3)
    }


async def test_a_system_prompt_of_ones_own_is_trained_and_tested_under(tmp_path: Path) -> None:
    trained = await train(tmp_path, steps=1, system_prompt="Be right.")
    assert {ask.instruction for ask in trained.model.asked} == {"Be right."}


def test_a_system_prompt_needs_a_task_that_takes_one() -> None:
    class Bare(Task, SupportsGeneration):
        name = "bare"

    method = make_method("grpo", system_prompt="Be right.")
    assert (method.incompatibility(Bare) or "").startswith("method.system_prompt: task=bare takes no system prompt")
    assert method.incompatibility(Quiz) is None
    instructed = make_method("grpo", task_instruction=True)
    assert (instructed.incompatibility(Bare) or "").startswith("method.task_instruction: task=bare takes no system")


def test_an_instruction_beside_a_system_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^method\.task_instruction: has no effect with method\.system_prompt"):
        make_config("method", "grpo", task_instruction=True, system_prompt="Be right.")


@pytest.mark.parametrize(
    ("response", "scores", "expected"),
    [
        (Response(text="5", answer="5"), {"format": 0.0}, 0.0),
        (Response(text="?", answer=None, error="no_answer"), {"format": 1.0}, 1.0),
        (Response(text="5", answer="5"), {}, 1.0),
        (Response(text="?", answer=None, error="no_answer"), {}, 0.0),
    ],
)
def test_a_tasks_own_score_of_the_format_counts_before_what_can_be_read(
    response: Response, scores: dict[str, float], expected: float
) -> None:
    assert formatted(response, Grade(correct=True, scores=scores)) == expected


def test_problems_to_test_on_are_not_trained_on() -> None:
    task = task_config("sudoku", box=2, empty_cells=2, instances=2, training_instances=3)
    config: Any = SimpleNamespace(seed=0, task=task, method=make_method("grpo"))
    split = task.load_training()
    found = training_problems(config, task.load())
    assert found is not None
    assert found.problems == split.problems
    with pytest.raises(DataError, match="expected other problems to train on than to test on, got '"):
        training_problems(config, split)


CHANGED: dict[str, Any] = {
    **{"steps": 3, "problems_per_step": 1, "group": 2, "temperature": 0.5, "top_p": 0.9, "max_tokens": 5},
    **{"system_prompt": "Be right.", "format_reward": 0.5, "format_penalty": 0.5, "minibatches": 2, "kl": 0.1},
    **{"clip_low": 0.1, "clip_high": 0.3, "loss": "grpo", "draws": 2, "task_instruction": True},
    **{"advantage": "entropic"},
    **{"eval_every": 1, "eval_samples": 2, "eval_temperature": 0.4, "eval_top_p": 0.7, "eval_max_tokens": 4},
}
OF_RUBRICS = {one.name for one in dataclasses.fields(RubricSettings)}
"""Without effect where the grade rewards; tests/rollouts/test_rubric_rewards.py and test_mpo.py look at them."""
OF_PLUGINS = {"reward_source", "reward_settings"}
"""test_reward_plugins.py looks at them."""
ELSEWHERE = (
    {"name", "baseline", "overflow_penalty", "eval_beside_rollouts", "data_epochs", "entropic_beta"}
    | OF_RUBRICS
    | OF_PLUGINS
)
"""`eval_beside_rollouts` changes when things are asked; test_espl.py looks at it, test_ppo.py at `data_epochs`,
and test_group_advantages.py at `entropic_beta`."""
FIELDS = [field.name for field in dataclasses.fields(GrpoConfig) if field.name not in ELSEWHERE]


async def test_what_is_cut_off_gets_the_overflow_penalty(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        return "right;..." if ask.index % 2 else "right"

    trained = await train(tmp_path / "run", script, steps=1, overflow_penalty=0.5)
    # Rewards 1, -0.5, 1 and -0.5, 1, -0.5, less the mean of each group
    [batch] = trained.policy.batches
    assert [row.advantage for row in batch] == [0.5, -1.0, 0.5, -0.5, 1.0, -0.5]
    ever = await train(tmp_path / "ever", script, steps=1)
    assert ever.policy.batches == []  # all right


async def test_every_field_has_an_effect(tmp_path: Path) -> None:
    """On what is asked of the model, on what is learned from, or on what TRL is told."""

    async def effect(folder: str, **config: Any) -> object:
        trained = await train(tmp_path / folder, method="grpo", **config)
        objective = trained.driver.method.make_objective(tmp_path)
        return trained.model.everything(), trained.policy.batches, objective

    before = await effect("before")
    assert [field for field in FIELDS if before == await effect(field, **{field: CHANGED[field]})] == []
    two = await effect("two", draws=2)
    assert await effect("baseline", draws=2, baseline="problem") != two  # of one draw it is the same


def test_what_trl_is_told() -> None:
    told = {name: make_method(name, **SMALL).make_objective(Path()) for name in METHODS}
    assert {name: (one.loss, one.settings.clip_high) for name, one in told.items()} == {
        "grpo": ("dr_grpo", 0.2),
        "cispo": ("cispo", 4.0),
        "rloo": ("dr_grpo", 0.2),
    }
    assert all((one.steps, one.settings.kl) == (4, 0.0) for one in told.values())


@pytest.mark.parametrize(("method", "changes"), [("cispo", {"clip_high": 0.2}), ("espl", {"loss": "cispo"})])
def test_bounds_of_a_ratio_that_one_is_out_of_are_refused(method: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"with cispo expected bounds of the ratio itself, .*, got 0\.\d and 0\.2"):
        make_config("method", method, **changes)


async def test_a_step_that_learns_nothing_of_rewards_that_differ_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def still(self: NotedPolicy, step: int, rows: object, **_: object) -> Figures:
        return Figures({"grad_norm": 0.0})

    monkeypatch.setattr(NotedPolicy, "update", still)
    with caplog.at_level(logging.WARNING, "evorun"):
        trained = await train(tmp_path / "run", steps=2)
    assert [line["figures"]["zero_gradient"] for line in trained.records("training")] == [1.0, 1.0]
    assert caplog.messages == ["step 1: the gradient is zero though rewards differ, so nothing is learned"]


@pytest.mark.parametrize("method", METHODS)
def test_the_size_of_a_step_does_not_depend_on_how_long_completions_may_be(method: str) -> None:
    short, long = (make_method(method, **{**SMALL, "max_tokens": most}) for most in (32, 15_000))
    assert short.make_objective(Path()) == long.make_objective(Path())


@pytest.mark.parametrize(
    ("field", "value"), [("group", 1), ("steps", 0), ("loss", "sapo"), ("temperature", 0), ("kl", -0.1)]
)
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^method\.{field}: expected "):
        make_config("method", "grpo", **{field: value})


@pytest.mark.parametrize("method", METHODS)
async def test_hostile_texts_are_data(tmp_path: Path, method: str) -> None:
    texts = ("", "\x00", "right", "{" * 500, "A" * 20_000)
    trained = await train(tmp_path, lambda ask: texts[(ask.index + ask.step) % len(texts)], method=method)
    assert len(trained.records("training")) == SMALL["steps"]
    assert sum(trained.cost().values()) == len(trained.model.asked)


class ScoredQuiz(Quiz):
    scores = (Score("error", 0, 8, higher_is_better=False),)


async def test_without_right_and_wrong_the_reward_is_the_primary_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def by_length(self: RightIsRight, problem: Problem, response: Response, tools: Tools) -> Grade:
        error = {"bb": 2.0, "dddd": 4.0}.get(response.answer or "")
        return Grade() if error is None else Grade(scores={"error": error})

    def script(ask: Ask) -> str | None:
        return ("bb", "dddd", "beyond all scoring", "bb", None, "dddd")[ask.index]

    monkeypatch.setattr(RightIsRight, "grade", by_length)
    trained = await train(tmp_path / "run", script, steps=1, task=ScoredQuiz(), format_reward=0.25)
    [batch] = trained.policy.batches
    assert [row.advantage for row in batch] == [
        0.125,
        -0.125,
        0.125,
        -0.125,
    ]  # of rewards scaled, turned round, with the bonus
    figures = trained.records("training")[0]["figures"]
    assert "correct" not in figures
    assert (figures["rejected"], figures["unscored"]) == (1.0, 1.0)
    assert {line["correct"] for line in trained.records("steps")} == {None}

"""Seconds of a training step by calculation: by hand from the model's size, and shared by the plan's GPUs."""

import pytest
from estimate_steps import LAFT, SET_UPS, STAGES, estimate_set_up, main

from evorun.models.devices import read_inventory

GRPO = (
    *("method=grpo", "task=arithmetic", "model=qwen2_1_5b", "engine=vllm", "method.steps=4", "method.eval_every=4"),
    *("method.problems_per_step=8", "method.group=5", "method.max_tokens=1000", "task.test_problems=10"),
    *("method.eval_samples=0", "method.eval_max_tokens=500"),
)
PARAMETERS = 1_543_714_304  # of Qwen2 1.5B, its tied embeddings once
OPERATORS = 0.7 * 0.7 + 0.3 * 0.7  # calls per member of a generation
PEAK = 989e12  # of an H100: bfloat16, dense


def test_seconds_are_those_of_the_completions_and_of_the_update() -> None:
    single, _ = estimate_set_up(GRPO, read_inventory("8x80"))
    rollouts, evaluated = 8 * 5 * 1000, 2 * 10 * 500 / 4  # tokens per step; evaluated at the start and at the end
    sampled = 2 * PARAMETERS * (rollouts + evaluated) / (PEAK * 0.10)
    trained = 6 * PARAMETERS * rollouts / (PEAK * 0.30)
    seconds = {load.roles.split(", ")[0]: load.seconds for load in single.loads}
    assert seconds == {"policy": pytest.approx(sampled, rel=0.01), "trainer": pytest.approx(trained, rel=0.01)}
    assert single.in_turn == pytest.approx(sampled + trained, rel=0.01)
    assert single.side_by_side == pytest.approx(max(sampled, trained), rel=0.01)


@pytest.mark.parametrize(
    ("stage", "seconds", "gpus"),
    [
        # 50 problems; the first population, and then for each member crossovers (.7, of which .3 are symbolic) and
        # mutations (.3, of which .3 are); 2 GPUs hold the teacher
        ("teacher", 2 * 32.76e9 * 50 * (30 + 15 * 30 * OPERATORS) * 4096 / 15 / (PEAK * 0.10), (2, 8)),
        ("student", 6 * 3.21e9 * 16 * 4096 / (PEAK * 0.30), (1, 4)),  # the parameters that the models' cards state
        ("", 2 * 3.21e9 * 50 * (20 + 20 * 20 * OPERATORS) * 4096 / 20 / (PEAK * 0.10), (1, 8)),
    ],
)
def test_laft_s_steps_are_generations_and_batches(stage: str, seconds: float, gpus: tuple[int, int]) -> None:
    single, planned = estimate_set_up(LAFT, read_inventory("8x80"), stage)
    assert tuple(one.loads[0].gpus for one in (single, planned)) == gpus
    assert len(single.loads) == len(planned.loads) == 1
    assert single.in_turn == single.side_by_side == pytest.approx(seconds, rel=0.02)
    copies = gpus[1] / gpus[0]
    assert planned.in_turn == pytest.approx(seconds / copies, rel=0.02)


def test_generations_that_a_budget_decides_are_those_that_it_pays() -> None:
    limits = ("method.max_tokens=1000", "method.judge_max_tokens=500", "budget.calls_per_problem=11")
    words = ("method=feedback_descent", "task=arithmetic", "model=qwen2_1_5b", "engine=vllm", "task.test_problems=10")
    single, _ = estimate_set_up((*words, *limits, "method.generations=null"), read_inventory("8x80"))
    tokens = 10 * ((1 + 5) * 1000 + 5 * 500) / 5  # a first response, and in each of 5 generations one and a judgment
    assert single.in_turn == pytest.approx(2 * PARAMETERS * tokens / (PEAK * 0.10), rel=0.01)


def test_a_set_up_that_does_not_fit_is_refused_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    main("1x80")
    shown = " ".join(capsys.readouterr().out.split())
    assert "refused: GPUs: expected room for reward_engine (qwen2_5_32b_awq) 29.4 GiB," in shown
    assert "LAFT, student of 3B │ 1x80 │ 200" in shown


@pytest.mark.parametrize("name", SET_UPS)
def test_the_plan_divides_the_work_of_the_papers_set_ups(name: str) -> None:
    single, planned = estimate_set_up(SET_UPS[name], read_inventory("8x80"), STAGES.get(name, ""))
    for one, many in zip(single.loads, planned.loads, strict=True):
        assert many.seconds == pytest.approx(one.seconds * one.gpus / many.gpus)
    assert planned.side_by_side < single.side_by_side / 3

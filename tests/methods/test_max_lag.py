"""Rollouts ahead of updates (`training.max_lag`): what they see, and that runs resume."""

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_espl import ESPL, learning, prompts

from building import composed, make_budget
from evorun.errors import ConfigError, EngineError
from evorun.models import Reply, Request
from evorun.runner.settings import check
from evorun.runs.journal_reader import read_journal
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.wire import Figures, Row
from learning_fixture import NotedPolicy, Sampled, train
from method_fixture import Ask

LAGGED = (
    *("method=espl", "task=arithmetic", "task.test_problems=2"),
    *("method.steps=5", "method.problems_per_step=2", "method.group=3", "method.prompts=2", "method.eval_every=2"),
    *("method.eval_samples=1", "method.reflect_with=policy", "evorun.progress=off"),
)
SIMULATED = ("engine=simulated", "engine.mean_tokens=5")
ESSAY = ("task=essay", "task.source=sample", "reward=qwen2_5_32b_awq", "reward_engine=simulated")


class Waits(NotedPolicy):
    """An update does not end before the rollouts of all steps that may run ahead of it have begun."""

    def __init__(self, steps: int, max_lag: int) -> None:
        super().__init__(max_lag)
        self.steps = steps
        self.begun: dict[int, asyncio.Event] = {}

    def script(self, ask: Ask) -> str:
        if ask.role == "rollout":
            self.begun.setdefault(ask.step, asyncio.Event()).set()
        return learning(ask)

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
        for ahead in range(step, min(step + self.max_lag, self.steps) + 1):
            await self.begun.setdefault(ahead, asyncio.Event()).wait()
        return await super().update(step, rows, rewards_changed=rewards_changed)


@pytest.mark.parametrize("lag", [1, 3])
async def test_batches_are_played_during_updates_under_the_prompts_that_there_are(lag: int, tmp_path: Path) -> None:
    policy = Waits(steps=5, max_lag=lag)
    trained = await train(tmp_path, policy.script, policy=policy, steps=5, **ESPL)
    assert len(policy.batches) == 5
    root, first = (prompts(trained)[name]["text"] for name in ("0.0", "1.0"))
    asked = [{ask.instruction for ask in trained.model.of("rollout") if ask.step == step} for step in range(6)]
    # Step s sees the prompts of step s - 1 - lag: all steps up to lag + 1 see the root alone.
    assert all(asked[step] == {root} for step in range(1, lag + 2))
    assert first in asked[lag + 2]


@pytest.mark.parametrize(("lag", "begun"), [(0, {1}), (1, {1, 2}), (2, {1, 2, 3})])
async def test_no_batch_waits_for_the_last_rollout_of_the_one_before(lag: int, begun: set[int], tmp_path: Path) -> None:
    """While one rollout of step 1 goes on, those of the next `lag` steps begin, and no others."""
    asked, free = set[int](), asyncio.Event()

    class Held(Sampled):
        async def complete(self, key: str, request: Request, step: int) -> Reply:
            if "|rollout|" in key:
                asked.add(int(key.split("|")[1]))
                if key.startswith("*|1|rollout|0|"):
                    await free.wait()
            return await super().complete(key, request, step)

    training = asyncio.create_task(train(tmp_path, policy=NotedPolicy(lag), model=Held))
    for _ in range(300):
        await asyncio.sleep(0)
    before, others = set(asked), len(asked)
    free.set()
    await training
    assert before == begun
    assert others < len(asked)


async def test_a_rollout_that_fails_ahead_ends_the_run_and_all_others(tmp_path: Path) -> None:
    """At once, although those of the present step go on."""

    class Failing(Sampled):
        async def complete(self, key: str, request: Request, step: int) -> Reply:
            if key.startswith("*|1|rollout|0|"):
                await asyncio.Event().wait()
            if key.startswith("*|2|rollout|3|"):
                raise EngineError("the server has gone")
            return await super().complete(key, request, step)

    with pytest.raises(EngineError, match="the server has gone"):
        await train(tmp_path, policy=NotedPolicy(2), model=Failing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


# a step takes 12 rollouts and 9 reflections, an evaluation 4 calls; a batch ahead is begun only if all of that is left
@pytest.mark.parametrize(("calls", "steps"), [(41, 1), (54, 2), (1000, 4)])
async def test_the_budget_pays_for_all_of_a_step_that_is_begun_ahead(
    calls: int, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "evorun"):
        budget = make_budget(calls=calls)
        policy = NotedPolicy(max_lag=1)
        trained = await train(tmp_path, learning, budget=budget, policy=policy, eval_samples=1, **ESPL)
    assert (len(policy.batches), policy.exported) == (steps, steps)
    assert len(trained.model.of("rollout")) == 12 * steps
    assert len([ask for ask in trained.model.of("evaluate") if ask.step == steps]) == 4


def lagged(folder: Path, lag: int, *engine: str, **stop: int) -> Run:
    return carry_out(check(composed(*LAGGED, *(engine or SIMULATED), f"training.max_lag={lag}")), folder, **stop)


@pytest.mark.nightly
@pytest.mark.parametrize("lag", [2, 1])
def test_a_steps_weights_are_those_that_its_number_says_also_when_it_is_resumed(lag: int, tmp_path: Path) -> None:
    whole = lagged(tmp_path / "whole", lag)
    versions: dict[tuple[str, int], set[int]] = {}
    for effect in read_journal(whole.path / "journal.sqlite"):
        _, step, role, *_ = effect.key.split("|")
        if role in ("rollout", "evaluate", "summary"):
            asked = re.search(rb"@(\d+)", effect.request)
            answered = msgspec.json.decode(effect.result, type=Reply).version
            assert asked is not None
            assert answered == int(asked[1])
            versions.setdefault((role, int(step)), set()).add(answered)
    expected = [max(0, step - 1 - lag) for step in range(1, 6)]
    assert [versions["rollout", step] for step in range(1, 6)] == [{version} for version in expected]
    assert {step: versions["evaluate", step] for step in (0, 2, 4)} == {0: {0}, 2: {2}, 4: {4}}
    assert versions["summary", 2] == {1}
    assert {(one["step"], one["version"]) for one in whole.records("rollouts")} == set(enumerate(expected, 1))
    lags = [one["figures"]["lag"] for one in whole.records("training")]
    assert lags == [step - 1 - version for step, version in enumerate(expected, 1)]
    for calls in range(9, len(whole.asked), 67):
        stopped = tmp_path / f"stopped{calls}"
        assert lagged(stopped, lag, breaks_after=calls).outcome.status == "failed"
        again = lagged(stopped, lag)
        assert again.outcome == COMPLETED
        assert len(again.asked) == len(whole.asked) - calls
        assert again.files() == whole.files()
    replayed = lagged(tmp_path / "replayed", lag, "engine=replay", f"engine.run={whole.path}")
    assert replayed.files() == whole.files()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["training.max_lag=-1"], r"^training.max_lag: expected a number >= 0, got -1"),
        (["training.max_lag=3", "method.steps=4"], r"^training.max_lag: expected at most 2 with the 4 steps of .*grpo"),
        (
            ["method=mpo", *ESSAY, "training.max_lag=4", "method.steps=9", "method.refine_every=5"],
            r"^training.max_lag: expected at most 3 with the 9 steps of method=mpo, so that .* all that changes, got 4",
        ),
        (["budget.tokens=9"], r"^training.max_lag: expected 0 where the budget limits tokens"),
        (["method=sft", "engine=transformers"], r"^training.max_lag: expected 0 with method=sft, which plays no"),
    ],
)
def test_where_there_is_no_lag(words: list[str], expected: str, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.touch()
    given = ["method=grpo", "task=arithmetic", "engine=simulated", "training.max_lag=1", *words]
    with pytest.raises(ConfigError, match=expected):
        check(composed(*given, *([f"method.data={data}"] if "method=sft" in words else [])))

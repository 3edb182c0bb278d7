"""Rollouts of the next step during an update (`training.max_lag`): which weights they have, and that runs resume."""

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_espl import ESPL, learning, prompts

from building import composed, make_budget
from evorun.errors import ConfigError
from evorun.runner.settings import check
from evorun.runs.journal_reader import read_journal
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.wire import Figures, Row
from learning_fixture import NotedPolicy, train
from method_fixture import Ask

LAGGED = (
    *("method=espl", "task=arithmetic", "task.test_problems=2", "engine=simulated", "engine.mean_tokens=5"),
    *("method.steps=4", "method.problems_per_step=2", "method.group=3", "method.prompts=2", "method.eval_every=2"),
    *("method.eval_samples=1", "method.reflect_with=policy", "training.max_lag=1", "evorun.progress=off"),
)


class Waits(NotedPolicy):
    """An update does not end before the rollouts of the next step have begun."""

    def __init__(self, steps: int) -> None:
        super().__init__(max_lag=1)
        self.steps = steps
        self.begun: dict[int, asyncio.Event] = {}

    def script(self, ask: Ask) -> str:
        if ask.role == "rollout":
            self.begun.setdefault(ask.step, asyncio.Event()).set()
        return learning(ask)

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False) -> Figures:
        if step < self.steps:
            await self.begun.setdefault(step + 1, asyncio.Event()).wait()
        return await super().update(step, rows, rewards_changed=rewards_changed)


async def test_the_next_batch_is_played_during_an_update_under_the_prompts_that_there_are(tmp_path: Path) -> None:
    policy = Waits(steps=3)
    trained = await train(tmp_path, policy.script, policy=policy, steps=3, **ESPL)
    assert len(policy.batches) == 3
    root, first = (prompts(trained)[name]["text"] for name in ("0.0", "1.0"))
    asked = {step: {ask.instruction for ask in trained.model.of("rollout") if ask.step == step} for step in (1, 2, 3)}
    assert asked[1] == asked[2] == {root}  # the child of step 1 is born while step 2 is played
    assert first in asked[3]


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


def lagged(folder: Path, **stop: int) -> Run:
    return carry_out(check(composed(*LAGGED)), folder, **stop)


def test_a_step_has_the_weights_after_the_update_before_the_last_also_when_it_is_resumed(tmp_path: Path) -> None:
    whole = lagged(tmp_path / "whole")
    versions: dict[tuple[str, int], set[str]] = {}
    for effect in read_journal(whole.path / "journal.sqlite"):
        _, step, role, *_ = effect.key.split("|")
        if found := re.search(rb"@(\d+)", effect.request):
            versions.setdefault((role, int(step)), set()).add(found[1].decode())
    assert {step: versions["rollout", step] for step in (1, 2, 3, 4)} == {1: {"0"}, 2: {"0"}, 3: {"1"}, 4: {"2"}}
    assert {step: versions["evaluate", step] for step in (0, 2, 4)} == {0: {"0"}, 2: {"2"}, 4: {"4"}}
    assert versions["summary", 2] == {"1"}
    for calls in range(9, len(whole.asked), 47):
        stopped = tmp_path / f"stopped{calls}"
        assert lagged(stopped, breaks_after=calls).outcome.status == "failed"
        again = lagged(stopped)
        assert again.outcome == COMPLETED
        assert len(again.asked) == len(whole.asked) - calls
        for name in ("training.jsonl", "rollouts.jsonl", "candidates.jsonl", "ratings.jsonl", "steps.jsonl"):
            assert (again.path / name).read_bytes() == (whole.path / name).read_bytes(), name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["training.max_lag=2"], r"^training.max_lag: expected a number in \[0, 1\], got 2"),
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

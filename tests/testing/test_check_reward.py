"""Right rewards pass the suite, and rewards with each fault that matters fail by name."""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest

from building import task_config
from evorun.methods.context import RunContext
from evorun.methods.learning.parts import LearningSettings, RewardSource, TaskReward
from evorun.methods.learning.reward_plugins import RewardConfig
from evorun.models.base import Reply, Sampling
from evorun.rollouts.calls import Calls, Role
from evorun.rollouts.rewards import Graded, Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.testing import check_reward

TASK = task_config("arithmetic", test_problems=2)
KEY = "REWARD_TEST_KEY"


class Changed(Graded):
    """The task's grade, less a price for the length of the response."""

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        graded = await super().reward(step, index, problem, response)
        return msgspec.structs.replace(graded, value=self.change(graded.value or 0.0, index, response))

    def change(self, value: float, index: int, response: Response) -> Any:
        return value - 0.001 * len(response.text)


class ByPlace(Changed):
    def change(self, value: float, index: int, response: Response) -> Any:
        return value + index


class Counting(Changed):
    asked = 0

    def change(self, value: float, index: int, response: Response) -> Any:
        Counting.asked += 1
        return value + Counting.asked


class Fragile(Changed):
    def change(self, value: float, index: int, response: Response) -> Any:
        return value + 1 / len(response.text)


class Endless(Changed):
    def change(self, value: float, index: int, response: Response) -> Any:
        return value if response.answer else float("-inf")


class Flat(Changed):
    def change(self, value: float, index: int, response: Response) -> Any:
        return 0.5


class Sleeping(Changed):
    def change(self, value: float, index: int, response: Response) -> Any:
        time.sleep(0)
        return value


class Telling(Changed):
    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        reward = await super().reward(step, index, problem, response)
        return msgspec.structs.replace(reward, rationale=f"Asked with {os.environ[KEY]}.")


class Mixing(Changed):
    """Keeps what it rewards in itself, so that calls at once meet."""

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        self.kept = response
        await asyncio.sleep(0)
        return await super().reward(step, index, problem, self.kept)


class Bare(Changed):
    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Any:
        return 1.0


class Asking(Changed):
    """Adds the length of what a model says."""

    def __init__(self, calls: Calls, *of_grade: Any) -> None:
        super().__init__(calls, *of_grade)
        self.calls, self.owed = calls, dict[int, Reply]()

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        reward = await super().reward(step, index, problem, response)
        prompt = self.calls.task.generation_prompt(problem)
        reply = await self.calls.ask(prompt, Sampling(), role="opinion", step=step, index=index, attempt=0)
        self.owed[index] = reply
        return msgspec.structs.replace(reward, value=(reward.value or 0.0) + len(reply.completions[0].text))

    def charge(self, step: int, index: int) -> None:
        self.calls.charge("opinion", [self.owed.pop(index)])


class Free(Asking):
    def charge(self, step: int, index: int) -> None:
        pass


class Source(TaskReward):
    def max_calls(self, episodes: int, step: int) -> int:
        return episodes if isinstance(self.rewards, Asking) else 0


@dataclass
class Config(RewardConfig):
    roles: ClassVar = {"opinion": Role("reward")}
    kind: Any = Changed

    def make(self, ctx: RunContext, settings: LearningSettings) -> RewardSource:
        return Source(ctx, settings, self.kind)


class Unbounded(Config):
    def make(self, ctx: RunContext, settings: LearningSettings) -> RewardSource:
        return TaskReward(ctx, settings, Asking)


@pytest.mark.parametrize("kind", [Graded, Changed, Asking])
def test_a_right_reward_passes(kind: type[Graded]) -> None:
    check_reward(lambda: Config(kind=kind), TASK, texts=["The answer is 7."], variables=[KEY])
    assert KEY not in os.environ


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ByPlace, "reward again, in another order"),
        (Counting, "reward again, in another order"),
        (Fragile, "expected a reward of any response, got ZeroDivisionError"),
        (Endless, "value: expected a finite number, found -inf"),
        (Flat, "expected rewards that differ"),
        (Sleeping, r"no call that blocks the event loop, found time\.sleep"),
        (Telling, "expected no key in it"),
        (Mixing, "reward with many calls at once"),
        (Bare, "expected a Reward, found 1.0"),
        (Free, "calls charged, of those made"),
    ],
)
def test_a_reward_with_a_fault_fails(kind: type[Graded], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_reward(lambda: Config(kind=kind), TASK, variables=[KEY])


def test_a_source_must_know_how_many_calls_its_rewards_may_take() -> None:
    with pytest.raises(AssertionError, match=r"max_calls: expected at least the \d+ calls made .* found 0"):
        check_reward(Unbounded, TASK)


def test_one_that_claims_to_see_no_answers_asks_for_no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "sees_answers", False)
    with pytest.raises(AssertionError, match="a reward with sees_answers=False asks for no grade"):
        check_reward(Config, TASK)


def test_a_new_instance_must_give_the_same_rewards() -> None:
    made: list[int] = []

    @dataclass
    class Drifting(Config):
        def make(self, ctx: RunContext, settings: LearningSettings) -> RewardSource:
            made.append(0)
            drift = float(len(made))

            class Drifted(Changed):
                def change(self, value: float, index: int, response: Response) -> float:
                    return value * drift

            return TaskReward(ctx, settings, Drifted)

    with pytest.raises(AssertionError, match="reward by a new one"):
        check_reward(Drifting, TASK)

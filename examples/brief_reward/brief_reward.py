"""A reward of one's own: the task's grade, less a price for each word."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from evorun.fields import NonNegativeFloat
from evorun.methods.context import RunContext
from evorun.methods.learning.parts import LearningSettings, RewardSource, TaskReward
from evorun.methods.learning.reward_plugins import RewardConfig
from evorun.rollouts.rewards import Graded, Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem


class BriefGrade(Graded):
    """Rewards by the task's grade, less the price of the response's words."""

    def __init__(self, word_price: float, *of_grade: Any) -> None:
        super().__init__(*of_grade)
        self._word_price = word_price

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        graded = await super().reward(step, index, problem, response)
        if graded.value is None:  # without a grade there is nothing to learn
            return graded
        words = len(response.text.split())
        return replace(graded, value=graded.value - self._word_price * words, parts={"words": float(words)})


@dataclass
class BriefReward(RewardConfig):
    """The keys of `method.reward_settings`."""

    word_price: NonNegativeFloat = 0.001
    """Subtracted from the reward for each word of a response."""

    def make(self, ctx: RunContext, settings: LearningSettings) -> RewardSource:
        return TaskReward(ctx, settings, partial(BriefGrade, self.word_price))

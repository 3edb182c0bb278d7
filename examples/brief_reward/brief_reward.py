"""A reward of one's own: the task's grade, less a price for each word, in the loop of GRPO."""

from dataclasses import dataclass

from msgspec.structs import replace

from evorun.fields import NonNegativeFloat
from evorun.methods.context import RunContext
from evorun.methods.learning.parts import RewardSource
from evorun.methods.learning.policy_gradient import Grpo, GrpoConfig
from evorun.rollouts.rewards import Graded, Reward
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem


@dataclass(kw_only=True)
class BriefGrpoConfig(GrpoConfig):
    """The hyperparameters of `grpo`, with its values, and one more."""

    name: str = "brief_grpo"
    word_price: NonNegativeFloat = 0.001
    """Subtracted from the reward for each word of a response."""


class BriefGrade(Graded):
    """Rewards by the task's grade, less the price of the response's words."""

    def __init__(self, ctx: RunContext, config: BriefGrpoConfig) -> None:
        split, penalties = ctx.training, (config.format_penalty, config.overflow_penalty)
        super().__init__(ctx.shared, split.task, split.grade, config.format_reward, *penalties)
        self._word_price = config.word_price

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        graded = await super().reward(step, index, problem, response)
        if graded.value is None:  # without a grade there is nothing to learn
            return graded
        words = len(response.text.split())
        return replace(graded, value=graded.value - self._word_price * words, parts={"words": float(words)})


class BriefGradeSource(RewardSource):
    """The same rewards in every step."""

    def __init__(self, ctx: RunContext, config: BriefGrpoConfig) -> None:
        self.rewards = BriefGrade(ctx, config)


class BriefGrpo(Grpo):
    """Group-relative policy optimization that pays for right answers in few words."""

    name = "brief_grpo"
    description = "grpo with the task's grade less a price for each word as its reward"
    Config = BriefGrpoConfig
    config: BriefGrpoConfig

    def rewards(self, ctx: RunContext) -> RewardSource:
        return BriefGradeSource(ctx, self.config)

"""Meta policy optimisation: the rubric that rewards evolves while the weights learn (MPO, section 2.3).

MPO owns the reward, not the trainer: its update is that of another method (`method.trainer`) under one configuration. A
meta reward model rewrites the rubric beside the update, every so many batches.
"""

from dataclasses import dataclass
from typing import ClassVar

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import RewardSource, Update
from evorun.methods.learning.policy_gradient import GroupRelative
from evorun.methods.learning.ppo import Proximal
from evorun.methods.mpo.refinement_settings import RefinedLearningSettings
from evorun.methods.mpo.rubrics import META_ROLES, make_rubric_source
from evorun.tasks.capabilities import Generates, ScoresByRubric
from evorun.training.objectives import LOSSES, GradientSettings, ProximalSettings

TRAINERS = ("ppo", "grpo", "cispo", "rloo")
"""The methods whose updates can be made."""


@dataclass(kw_only=True)
class MpoConfig(RefinedLearningSettings, ProximalSettings, GradientSettings):
    """Hyperparameters; `conf/method/mpo.yaml` gives each default and its source.

    Those of other trainers than the chosen one have no effect.
    """

    trainer: str
    """ppo | grpo | cispo | rloo: the method whose update is made, with its settings."""
    loss: str
    """Of grpo: grpo | dr_grpo | dapo | bnpo, how a batch's tokens are weighed."""

    def __post_init__(self) -> None:
        RefinedLearningSettings.__post_init__(self)
        ProximalSettings.__post_init__(self)
        GradientSettings.__post_init__(self)
        one_of("method.trainer", self.trainer, TRAINERS)
        one_of("method.loss", self.loss, LOSSES)
        if self.trainer != "ppo":
            at_least("method.group", self.group, 2)
        if self.trainer == "cispo":
            self.require_bounds_of_cispo()
        if self.rubric is None:
            raise ConfigError(
                "method.rubric: expected a rubric to begin with (initial, expert, FILE), got null; without one, "
                f"method={self.trainer} learns from the task's grade"
            )


class Mpo(Learning):
    """Reinforcement learning by a rubric that a meta reward model refines."""

    name = "mpo"
    description = "the reward model's rubric evolves by a meta reward model while the weights learn (MPO)"
    roles: ClassVar = {**Learning.roles, **META_ROLES}
    Config: ClassVar[type[MpoConfig]] = MpoConfig
    config: MpoConfig
    regime = "problem_only"
    needs = (Generates, ScoresByRubric)

    @property
    def update(self) -> Update:
        config = self.config
        if config.trainer == "ppo":
            return Proximal(config, config.temperature, config.group)
        loss = {"grpo": config.loss, "cispo": "cispo", "rloo": "dr_grpo"}[config.trainer]
        return GroupRelative(config, config.temperature, config.group, loss, leave_one_out=config.trainer == "rloo")

    def rewards(self, ctx: RunContext) -> RewardSource:
        return make_rubric_source(ctx, self.config, self.last_step)

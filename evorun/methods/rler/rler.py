"""Reinforcement learning with evolving rubrics: each problem has criteria of its own (RLER, DR Tulu, arXiv 2511.19399).

The update is that of `grpo`. Where each problem has criteria in its data, `method.adaptive=false` is rubrics as rewards
(arXiv 2507.17746). A step takes `problems_per_step` x `group` rollouts, a call per problem to write criteria, and one
judgment for each rollout and criterion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from evorun.methods.base import Regime
from evorun.methods.context import RunContext
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import RewardSource
from evorun.methods.learning.policy_gradient import Grpo, GrpoConfig
from evorun.methods.learning.scheduler import ROLLOUT
from evorun.methods.rler.items import WRITE, ItemReward
from evorun.methods.rler.settings import ItemSettings
from evorun.rollouts.calls import Role
from evorun.rollouts.rubric_rewards import SCORE
from evorun.tasks.base import Task
from evorun.tasks.capabilities import HasRubricItems, SupportsGeneration, SupportsRubrics


@dataclass(kw_only=True)
class RlerConfig(GrpoConfig, ItemSettings):
    """Hyperparameters; `conf/method/rler.yaml` gives each default and its source."""

    own_rewards = "the criteria of each problem"

    @property
    def sees_answers(self) -> bool:
        return False


class Rler(Grpo):
    """GRPO whose rewards are the criteria of each problem, judged one by one."""

    name = "rler"
    description = "each problem has criteria of its own, judged one by one, that evolve while the weights learn (RLER)"
    regime: ClassVar[Regime] = "problem_only"
    needs = (SupportsGeneration, SupportsRubrics, HasRubricItems)
    roles: ClassVar[Mapping[str, Role]] = {
        ROLLOUT: Learning.roles[ROLLOUT],
        SCORE: Role("reward"),
        WRITE: Role("meta"),
    }
    # A step's criteria depend on those of the step before.
    plays_ahead = None
    Config = RlerConfig
    config: RlerConfig

    def rewards(self, ctx: RunContext) -> RewardSource:
        config = self.config
        return ItemReward(ctx, config, config.group * config.draws, config.overflow_penalty)

    @property
    def active_roles(self) -> Mapping[str, Role]:
        return {name: role for name, role in self.roles.items() if self.config.adaptive or name != WRITE}

    def information_regime(self, task: type[Task]) -> Regime:
        # Where there is right and wrong, criteria in the data say what a right response has.
        return "labels" if self.config.persistent and not task.graded_by_opinion else "problem_only"

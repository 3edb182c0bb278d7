"""Reinforcement learning on a task's training split under one fixed prompt: `grpo`, `cispo` and `rloo`.

The baselines "RL only" of E-SPL (section 4.1): its loop under one prompt that never changes, with its objective
(section 3.1): N completions of each problem are sampled and rewarded, and each one's advantage is its reward minus the
mean of the N (with `rloo`: of the others), not divided by their standard deviation. TRL's GRPOTrainer does the rest.
"""

from dataclasses import dataclass
from typing import ClassVar

from evorun.errors import one_of
from evorun.methods.espl import ROLLOUT, Espl, RoundSettings
from evorun.methods.gradient import LOSSES, GradientSettings
from evorun.rollouts.calls import Role
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates, Instructs


@dataclass(kw_only=True)
class PolicyGradientConfig(RoundSettings, GradientSettings):
    """Hyperparameters; the methods' YAML files give each default and its source."""

    def __post_init__(self) -> None:
        RoundSettings.__post_init__(self)
        GradientSettings.__post_init__(self)


@dataclass(kw_only=True)
class GrpoConfig(PolicyGradientConfig):
    """Hyperparameters; `conf/method/grpo.yaml` gives each default and its source."""

    loss: str
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighed (`evorun.training.batches.token_weight`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method.loss", self.loss, LOSSES)


@dataclass(kw_only=True)
class CispoConfig(PolicyGradientConfig):
    """Hyperparameters; `conf/method/cispo.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_bounds_of_cispo()


class Grpo(Espl):
    """Group-relative policy optimisation."""

    name = "grpo"
    description = "reinforcement learning by group-relative advantages (TRL's GRPOTrainer)"
    needs = (Generates,)
    roles: ClassVar = {ROLLOUT: Role("policy", lag=1)}
    Config: ClassVar[type[PolicyGradientConfig]] = GrpoConfig

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.system_prompt is not None and not issubclass(task, Instructs):
            return f"method.system_prompt: task={task.name} takes no system prompt; leave it null"
        return None


class Cispo(Grpo):
    """The same advantages with importance weights that are cut, while every token keeps its gradient."""

    name = "cispo"
    description = "reinforcement learning with clipped importance weights (CISPO, TRL's GRPOTrainer)"
    loss = "cispo"
    Config = CispoConfig


class Rloo(Grpo):
    """REINFORCE with the mean reward of a completion's siblings as its baseline."""

    name = "rloo"
    description = "REINFORCE with a leave-one-out baseline (TRL's GRPOTrainer)"
    leave_one_out = True
    Config = PolicyGradientConfig

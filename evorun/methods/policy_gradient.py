"""Reinforcement learning on a task's training split under one fixed prompt: `grpo`, `cispo` and `rloo`.

The baselines "RL only" of E-SPL (section 4.1): its loop under one prompt that never changes, with its objective
(section 3.1): N completions of each problem are sampled and rewarded, and each one's advantage is its reward minus the
mean of the N (with `rloo`: of the others), not divided by their standard deviation. TRL's GRPOTrainer does the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import at_least, one_of
from evorun.methods.gradient import LOSSES, GradientSettings, advantages
from evorun.methods.reinforcement import Reinforcement
from evorun.methods.round_settings import ReinforcementSettings
from evorun.rollouts.episodes import Episode
from evorun.training.wire import PolicyGradient


@dataclass(kw_only=True)
class PolicyGradientConfig(ReinforcementSettings, GradientSettings):
    """Hyperparameters; the methods' YAML files give each default and its source."""

    def __post_init__(self) -> None:
        ReinforcementSettings.__post_init__(self)
        GradientSettings.__post_init__(self)
        at_least("method.group", self.group, 2)


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


class GroupRelative(Reinforcement):
    """Policy gradients by advantages within groups: completions of one problem are measured by their mean reward."""

    leave_one_out: ClassVar[bool] = False
    """A completion's own reward is left out of its baseline."""

    @property
    def loss(self) -> str:
        """TRL's name of the loss."""
        return "dr_grpo"

    def objective(self, run: Path) -> PolicyGradient:
        config = self.config
        assert isinstance(config, GradientSettings)  # noqa: S101 - asked for only where weights are trained
        return PolicyGradient(
            loss=self.loss,
            steps=config.steps,
            minibatches=config.minibatches,
            kl=config.kl,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            temperature=config.temperature,
        )

    def signals(self, episodes: Sequence[Episode]) -> list[float | None]:
        return list(advantages(episodes, self.config.group, leave_one_out=self.leave_one_out))

    def moves(self, signals: Sequence[float]) -> bool:
        # With equal rewards in each group only the divergence from the reference policy has a gradient.
        divergence = isinstance(self.config, GradientSettings) and self.config.kl
        return any(signals) or bool(divergence and signals)


class Grpo(GroupRelative):
    """Group-relative policy optimisation."""

    name = "grpo"
    description = "reinforcement learning by group-relative advantages (TRL's GRPOTrainer)"
    Config = GrpoConfig
    config: GrpoConfig

    @property
    def loss(self) -> str:
        return self.config.loss


class Cispo(GroupRelative):
    """The same advantages with importance weights that are cut, while every token keeps its gradient."""

    name = "cispo"
    description = "reinforcement learning with clipped importance weights (CISPO, TRL's GRPOTrainer)"
    Config = CispoConfig

    @property
    def loss(self) -> str:
        return "cispo"


class Rloo(GroupRelative):
    """REINFORCE with the mean reward of a completion's siblings as its baseline."""

    name = "rloo"
    description = "REINFORCE with a leave-one-out baseline (TRL's GRPOTrainer)"
    leave_one_out = True
    Config = PolicyGradientConfig

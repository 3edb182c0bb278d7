"""A method that learns by advantages of its own: a group's rewards less their mean, divided by their spread."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from evorun.fields import PositiveFloat
from evorun.methods.learning.group_advantages import subtract_mean
from evorun.methods.learning.parts import UpdateRule
from evorun.methods.learning.policy_gradient import PolicyGradientConfig, Rloo


@dataclass(kw_only=True)
class NormalisedConfig(PolicyGradientConfig):
    """Hyperparameters: those of `rloo`, with its values, and one more."""

    name: str = "normalised"
    epsilon: PositiveFloat = 1e-4
    """Added to the standard deviation (TRL's value)."""


class Normalised(Rloo):
    """GRPO's first advantages (arXiv 2402.03300, section 4.1.2): hard and easy problems count as much as others."""

    name = "normalised"
    description = "reinforcement learning by advantages divided by their group's standard deviation"
    Config = NormalisedConfig
    config: NormalisedConfig

    @property
    def update_rule(self) -> UpdateRule:
        return self.group_relative(advantages=self.normalise)

    def normalise(self, rewards: Sequence[float]) -> list[float]:
        """Return the advantages of one group, in the order of its rewards."""
        scale = statistics.pstdev(rewards) + self.config.epsilon
        return [advantage / scale for advantage in subtract_mean(rewards)]

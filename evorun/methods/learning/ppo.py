"""Proximal policy optimization on a task's training split under one fixed prompt: `ppo`.

A completion needs no others of its problem as a baseline: the trainer's critic turns the episodes' rewards into
advantages (`evorun.training.wire.ProximalPolicy`).
"""

from dataclasses import dataclass

from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import LearningSettings, UpdateRule
from evorun.methods.learning.updates import Proximal
from evorun.training.objectives import ProximalSettings


@dataclass(kw_only=True)
class PpoConfig(LearningSettings, ProximalSettings):
    """Hyperparameters; `conf/method/ppo.yaml` gives each default and its source."""


class Ppo(Learning):
    """PPO with a critic."""

    name = "ppo"
    description = "reinforcement learning by proximal policy optimisation, with a critic (PPO)"
    Config = PpoConfig
    config: PpoConfig

    @property
    def update_rule(self) -> UpdateRule:
        return Proximal(self.config, self.config.temperature, self.config.group)

"""Proximal policy optimisation on a task's training split under one fixed prompt: `ppo`.

The trainer has a critic, so a completion needs no others of its problem to be measured by: what it is told of an
episode is the reward itself, and it makes advantages of it (`evorun.training.wire.ProximalPolicy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.methods.proximal import ProximalSettings
from evorun.methods.reinforcement import Reinforcement
from evorun.methods.round_settings import ReinforcementSettings
from evorun.rollouts.episodes import Episode
from evorun.training.wire import ProximalPolicy


@dataclass(kw_only=True)
class PpoConfig(ReinforcementSettings, ProximalSettings):
    """Hyperparameters; `conf/method/ppo.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        ReinforcementSettings.__post_init__(self)
        ProximalSettings.__post_init__(self)


class Ppo(Reinforcement):
    """PPO with a critic of its own."""

    name = "ppo"
    description = "reinforcement learning by proximal policy optimisation, with a critic (PPO)"
    Config: ClassVar[type[PpoConfig]] = PpoConfig
    config: PpoConfig

    def objective(self, run: Path) -> ProximalPolicy:
        return self.config.objective(steps=self.config.steps, temperature=self.config.temperature)

    def signals(self, episodes: Sequence[Episode]) -> list[float | None]:
        return self.config.signals(episodes)

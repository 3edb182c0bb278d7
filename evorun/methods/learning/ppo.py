"""Proximal policy optimisation on a task's training split under one fixed prompt: `ppo`.

A completion needs no others of its problem to be measured by: the trainer has a critic, which makes advantages of the
episodes' rewards (`evorun.training.wire.ProximalPolicy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.methods.learning.loop import Reinforcement
from evorun.methods.learning.proximal import ProximalSettings
from evorun.methods.learning.round_settings import ReinforcementSettings
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
        # The steps are not known before `fit_to`, and not needed there.
        return self.config.objective(steps=self.last_step or 1, temperature=self.config.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        return self.config.rewards(episodes)

"""Proximal policy optimisation on a task's training split under one fixed prompt: `ppo`.

A completion needs no others of its problem to be measured by: the trainer has a critic, which makes advantages of the
episodes' rewards (`evorun.training.wire.ProximalPolicy`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import Update
from evorun.methods.learning.settings import LearningSettings
from evorun.rollouts.episodes import Episode
from evorun.training.objectives import ProximalSettings, select_settings
from evorun.training.wire import ProximalPolicy, Row


@dataclass(frozen=True)
class Proximal:
    """Updates by PPO, whose critic estimates the advantages of tokens."""

    settings: ProximalSettings
    temperature: float
    """Of the completions."""
    baseline_group: int
    """Completions of a problem, which its figures compare."""

    def objective(self, steps: int) -> ProximalPolicy:
        settings = select_settings(ProximalSettings, self.settings)
        return ProximalPolicy(steps=steps, settings=settings, temperature=self.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the reward of each episode, less the penalty for a missing end; None without a reward.

        An episode that the task or the engine cut off has not ended by itself.
        """
        penalty = self.settings.missing_eos_penalty or 0.0
        return [
            None if episode.reward.value is None else episode.reward.value - penalty * (not _ended(episode))
            for episode in episodes
        ]

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        return [None] * len(episodes)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        return bool(rows)


def _ended(episode: Episode) -> bool:
    """Tell whether the model itself ended its last turn."""
    reply = episode.replies[-1]
    return reply.error is None and reply.completions[0].finish_reason == "stop"


@dataclass(kw_only=True)
class PpoConfig(LearningSettings, ProximalSettings):
    """Hyperparameters; `conf/method/ppo.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        LearningSettings.__post_init__(self)
        ProximalSettings.__post_init__(self)


class Ppo(Learning):
    """PPO with a critic of its own."""

    name = "ppo"
    description = "reinforcement learning by proximal policy optimisation, with a critic (PPO)"
    Config = PpoConfig
    config: PpoConfig

    @property
    def update(self) -> Update:
        return Proximal(self.config, self.config.temperature, self.config.group)

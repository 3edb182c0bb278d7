"""The updates of the weights: by advantages within groups of completions, and by PPO with a critic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from evorun.errors import ConfigError, PluginError
from evorun.fields import Checked, OneOf, PositiveFloat
from evorun.methods.learning.group_advantages import subtract_mean, weight_entropically
from evorun.rollouts.episodes import Episode
from evorun.training.objectives import GradientSettings, ProximalSettings, select_settings
from evorun.training.wire import PolicyGradient, ProximalPolicy, Row

BASELINES = ("draw", "problem")
ADVANTAGES = ("mean", "entropic")
GroupAdvantages = Callable[[Sequence[float]], Sequence[float]]
"""Returns the advantages of a group's completions from their rewards, in the same order; there is at least one."""


@dataclass(kw_only=True)
class BaselineSettings(Checked):
    """Hyperparameters of advantages for methods that play a problem under several draws of system prompts."""

    section = "method"

    baseline: Annotated[str, OneOf(BASELINES)]
    """draw | problem: the baseline is the problem's mean reward under the same draw of a system prompt, or under all
    draws of the step."""


@dataclass(kw_only=True)
class AdvantageSettings(Checked):
    """Hyperparameters of the advantages within a group."""

    section = "method"

    advantage: Annotated[str, OneOf(ADVANTAGES)]
    """mean: a reward less its baseline, which raises the mean reward. entropic: exponential weights of the rewards,
    relative to the others of the group, less 1, which raise the largest reward (`evorun.methods.learning
    .group_advantages`)."""
    entropic_beta: PositiveFloat | None
    """Of entropic advantages: the factor of rewards in the exponent; null: for each group the one at which the weights
    diverge from uniform ones by ln 2, which takes groups of at least three."""

    def require_group(self, size: int) -> None:
        """Raise ConfigError for settings without an effect, or for groups too small for an adaptive beta."""
        if self.advantage == "mean" and self.entropic_beta is not None:
            raise ConfigError("method.entropic_beta: has no effect with method.advantage=mean; leave it null")
        if self.advantage == "entropic" and self.entropic_beta is None and size < 3:
            raise ConfigError(
                "method.group: expected at least 3 with method.advantage=entropic, since two completions have no "
                f"adaptive beta, got {size}; raise it, or set method.entropic_beta=NUMBER"
            )

    @property
    def group_advantages(self) -> GroupAdvantages:
        """The function that these settings choose."""
        return subtract_mean if self.advantage == "mean" else partial(weight_entropically, beta=self.entropic_beta)


@dataclass(frozen=True)
class GroupRelative:
    """Policy gradients with advantages within groups: the baseline is the mean reward of a problem's completions."""

    settings: GradientSettings
    temperature: float
    """Sampling temperature of the completions."""
    baseline_group: int
    """Consecutive episodes of one problem, under one draw of a system prompt or under all draws."""
    loss: str = "dr_grpo"
    """TRL's name of the loss."""
    group_advantages: GroupAdvantages = subtract_mean

    def make_objective(self, steps: int) -> PolicyGradient:
        settings = select_settings(GradientSettings, self.settings)
        return PolicyGradient(loss=self.loss, steps=steps, settings=settings, temperature=self.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        return [episode.reward.value for episode in episodes]

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the advantages within each group, of the episodes with a reward; None without one.

        Raises PluginError if the group's function does not give a finite number for each reward.
        """
        result: list[float | None] = []
        for first in range(0, len(episodes), self.baseline_group):
            rewards = self.rewards(episodes[first : first + self.baseline_group])
            advantages = iter(self._of_group([value for value in rewards if value is not None]))
            result += [None if value is None else next(advantages) for value in rewards]
        return result

    def _of_group(self, rewards: list[float]) -> list[float]:
        advantages = [float(value) for value in self.group_advantages(rewards)] if rewards else []
        if len(advantages) != len(rewards) or not all(map(math.isfinite, advantages)):
            raise PluginError(
                f"advantages: expected a finite number for each of the {len(rewards)} rewards {rewards}, got "
                f"{advantages}; mend the function that the method's update_rule gives"
            )
        return advantages

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        # With equal rewards in each group only the divergence from the reference policy has a gradient.
        return any(row.advantage for row in rows) or bool(self.settings.kl and rows)


@dataclass(frozen=True)
class Proximal:
    """Updates by PPO, whose critic estimates the advantages of tokens."""

    settings: ProximalSettings
    temperature: float
    """Sampling temperature of the completions."""
    baseline_group: int
    """Completions per problem, which the figures compare."""

    def make_objective(self, steps: int) -> ProximalPolicy:
        settings = select_settings(ProximalSettings, self.settings)
        return ProximalPolicy(steps=steps, settings=settings, temperature=self.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return each reward, less the penalty for a missing end of sequence; None without a reward.

        An episode that the task or the engine cut off has no end of sequence.
        """
        penalty = self.settings.missing_eos_penalty or 0.0
        return [
            None if episode.reward.value is None else episode.reward.value - penalty * (not _ended_by_model(episode))
            for episode in episodes
        ]

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        return [None] * len(episodes)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        return bool(rows)


def _ended_by_model(episode: Episode) -> bool:
    """Return whether the model itself ended its last turn."""
    reply = episode.replies[-1]
    return reply.error is None and reply.completions[0].finish_reason == "stop"

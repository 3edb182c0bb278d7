"""The updates of the weights: by advantages within groups of completions, and by PPO with a critic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from evorun.fields import Checked, OneOf
from evorun.rollouts.episodes import Episode
from evorun.training.objectives import GradientSettings, ProximalSettings, select_settings
from evorun.training.wire import PolicyGradient, ProximalPolicy, Row

BASELINES = ("draw", "problem")


@dataclass(kw_only=True)
class BaselineSettings(Checked):
    """Hyperparameters of advantages for methods that play a problem under several draws of system prompts."""

    section = "method"

    baseline: Annotated[str, OneOf(BASELINES)]
    """draw | problem: the baseline is the problem's mean reward under the same draw of a system prompt, or under all
    draws of the step."""


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
    leave_one_out: bool = False
    """Leave a completion's own reward out of its baseline."""

    def make_objective(self, steps: int) -> PolicyGradient:
        settings = select_settings(GradientSettings, self.settings)
        return PolicyGradient(loss=self.loss, steps=steps, settings=settings, temperature=self.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        return [episode.reward.value for episode in episodes]

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return each reward less the mean of its group (equation 2), or of the others in it; None without a reward."""
        result: list[float | None] = []
        for first in range(0, len(episodes), self.baseline_group):
            rewards = self.rewards(episodes[first : first + self.baseline_group])
            scored = [value for value in rewards if value is not None]
            # The mean of equal rewards must be exact: rounding would make advantages out of nothing.
            mean = scored[0] if len(set(scored)) == 1 else sum(scored) / max(len(scored), 1)
            # A reward's distance to the mean of the others is n / (n - 1) times its distance to the mean of all.
            scale = len(scored) / max(len(scored) - 1, 1) if self.leave_one_out else 1.0
            result += [None if value is None else scale * (value - mean) for value in rewards]
        return result

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

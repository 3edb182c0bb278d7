"""The updates of the weights: by advantages within groups of completions, and by PPO with a critic."""

from collections.abc import Sequence
from dataclasses import dataclass

from evorun.errors import one_of
from evorun.rollouts.episodes import Episode
from evorun.training.objectives import GradientSettings, ProximalSettings, select_settings
from evorun.training.wire import PolicyGradient, ProximalPolicy, Row

BASELINES = ("draw", "problem")


@dataclass(kw_only=True)
class BaselineSettings:
    """Hyperparameters of advantages, of methods that play a problem under several draws of system prompts."""

    baseline: str
    """draw | problem: a reward is measured by the mean reward of its problem under the same draw of a system prompt, or
    under all that a step has drawn."""

    def __post_init__(self) -> None:
        one_of("method.baseline", self.baseline, BASELINES)


@dataclass(frozen=True)
class GroupRelative:
    """Policy gradients by advantages within groups: completions of one problem are measured by their mean reward."""

    settings: GradientSettings
    temperature: float
    """Of the completions."""
    baseline_group: int
    loss: str = "dr_grpo"
    """TRL's name of the loss."""
    leave_one_out: bool = False
    """A completion's own reward is left out of its baseline."""

    def objective(self, steps: int) -> PolicyGradient:
        settings = select_settings(GradientSettings, self.settings)
        return PolicyGradient(loss=self.loss, steps=steps, settings=settings, temperature=self.temperature)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        return [episode.reward.value for episode in episodes]

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        return advantages(episodes, self.baseline_group, leave_one_out=self.leave_one_out)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        # With equal rewards in each group only the divergence from the reference policy has a gradient.
        return any(row.advantage for row in rows) or bool(self.settings.kl and rows)


def advantages(episodes: Sequence[Episode], group: int, *, leave_one_out: bool = False) -> list[float | None]:
    """Return each reward less the mean of its group (equation 2), or of the others in it; None without a reward.

    group: as many consecutive episodes are of one problem, under one draw of a system prompt or under all.
    """
    result: list[float | None] = []
    for first in range(0, len(episodes), group):
        rewards = [one.reward.value for one in episodes[first : first + group]]
        scored = [value for value in rewards if value is not None]
        # Of equal ones exactly theirs: a sum's rounding would make something to learn of nothing.
        mean = scored[0] if len(set(scored)) == 1 else sum(scored) / max(len(scored), 1)
        # The mean of the others is as far from a reward as that of all is, times n / (n - 1).
        scale = len(scored) / max(len(scored) - 1, 1) if leave_one_out else 1.0
        result += [None if value is None else scale * (value - mean) for value in rewards]
    return result


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

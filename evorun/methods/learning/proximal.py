"""Proximal policy optimisation of a batch of episodes: hyperparameters, and the rewards that the critic learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from evorun.errors import above, at_least, one_of, within
from evorun.rollouts.episodes import Episode
from evorun.training.wire import ProximalPolicy

CRITICS = ("full", "model", "head")
KL_ESTIMATORS = ("k1", "k3")
SCORED_AT = ("last", "after")


@dataclass(kw_only=True)
class ProximalSettings:
    """Hyperparameters of PPO's weight updates, part of the configuration of every method that makes them."""

    epochs: int
    """Passes over each batch."""
    minibatches: int
    """Optimiser steps a pass."""
    kl: float
    """Weight of the divergence from the reference policy in the reward of each token (beta)."""
    kl_estimator: str
    """k1 | k3: of a token's divergence, the log-ratio, or Schulman's estimator that is never negative."""
    gamma: float
    """Discount of the rewards of later tokens."""
    gae_lambda: float
    """Weight of later tokens in an advantage: 0 trusts the critic, 1 the rewards alone (lambda)."""
    clip: float
    """Beyond 1 - clip and 1 + clip times a token's probability before the update nothing is learned."""
    value_clip: float | None
    """The same for a value, as a difference; null: no bound."""
    value_weight: float
    """Weight of the value loss (vf)."""
    whiten: bool
    """Bring a batch's advantages to mean 0 and variance 1."""
    score_at: str
    """after: the reward stands one step after the last token, of episodes shorter than the batch's longest (TRL's);
    last: on the last token of each."""
    critic: str
    """full: a copy of the model with a value head, all its weights trained; model: a copy of the base weights with an
    adapter and a value head; head: the policy's own base weights with them: the same values, in less memory."""
    popart: float | None
    """The critic learns returns in running standard deviations from their running mean, in which a batch has this
    weight: 0.1 follows a new scale of rewards within about ten batches. `value_clip` and the value loss are then in
    this scale, too, and values stay what they were when it changes (van Hasselt et al. 2016). null: returns as they
    are."""
    reset_critic: bool
    """Set the value head to 0 at the first update after the rubric has changed, and forget its part of the optimiser's
    state; what is below the head stays."""
    missing_eos_penalty: float | None
    """Subtracted from the reward of an episode whose last turn does not end by itself; null: nothing."""

    def __post_init__(self) -> None:
        for key in ("epochs", "minibatches"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("kl", "value_weight"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for key in ("clip", "value_clip", "missing_eos_penalty"):
            above(f"method.{key}", getattr(self, key), 0)
        for key in ("gamma", "gae_lambda", "popart"):
            within(f"method.{key}", getattr(self, key), 0, 1)
        above("method.popart", self.popart, 0)
        one_of("method.kl_estimator", self.kl_estimator, KL_ESTIMATORS)
        one_of("method.score_at", self.score_at, SCORED_AT)
        one_of("method.critic", self.critic, CRITICS)

    def objective(self, *, steps: int, temperature: float) -> ProximalPolicy:
        """Return the trainer's objective. steps: batches at most. temperature: of the completions."""
        return ProximalPolicy(
            steps=steps,
            epochs=self.epochs,
            minibatches=self.minibatches,
            kl=self.kl,
            kl_estimator=cast(Any, self.kl_estimator),
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            clip=self.clip,
            value_clip=self.value_clip,
            value_weight=self.value_weight,
            whiten=self.whiten,
            score_at=cast(Any, self.score_at),
            critic=cast(Any, self.critic),
            popart=self.popart,
            reset_critic=self.reset_critic,
            temperature=temperature,
        )

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the reward of each episode, less the penalty for a missing end; None without a reward.

        An episode that the task or the engine cut off has not ended by itself.
        """
        penalty = self.missing_eos_penalty or 0.0
        return [
            None if one.reward.value is None else one.reward.value - penalty * (not _ended(one)) for one in episodes
        ]


def _ended(episode: Episode) -> bool:
    """Tell whether the model itself ended its last turn."""
    reply = episode.replies[-1]
    return reply.error is None and reply.completions[0].finish_reason == "stop"

"""Hyperparameters of weight updates: part of a method's configuration, and of the trainer's job as they stand."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from evorun.errors import ConfigError, above, at_least, one_of, within

T = TypeVar("T")

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")
"""TRL's names of the ways to weigh a batch's tokens; `cispo` has its own importance weights."""


@dataclass(kw_only=True)
class GradientSettings:
    """Hyperparameters of a policy-gradient update, part of the configuration of every method that makes one."""

    minibatches: int
    """Optimiser steps that a batch is divided into."""
    kl: float
    """Weight of the divergence from the reference policy (beta)."""
    clip_low: float
    clip_high: float
    """Bound on the ratio of a token's probability to the sampler's: beyond 1 - clip_low and 1 + clip_high times as
    large nothing is learned. With `cispo` the ratio is cut at these bounds themselves, and goes on weighing."""

    def __post_init__(self) -> None:
        at_least("method.minibatches", self.minibatches, 1)
        at_least("method.kl", self.kl, 0)
        at_least("method.clip_low", self.clip_low, 0)
        above("method.clip_high", self.clip_high, 0)

    def require_bounds_of_cispo(self) -> None:
        """Raise ConfigError where a ratio of 1, that of the sampler's own policy, is out of bounds."""
        if self.clip_low > 1 or self.clip_high < 1:
            raise ConfigError(
                "method.clip_low, method.clip_high: with cispo expected bounds of the ratio itself, with 1 between "
                f"them (its authors': 0.0 and 4.0), got {self.clip_low} and {self.clip_high}"
            )


CRITICS = ("full", "model", "head")
KL_ESTIMATORS = ("k1", "k3")
SCORED_AT = ("last", "after")


@dataclass(kw_only=True)
class ProximalSettings:
    """Hyperparameters of an update by PPO, part of the configuration of every method that makes one."""

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


def select_settings(kind: type[T], config: Any) -> T:
    """Return the settings of one kind that a method's configuration holds among others."""
    values = vars(config)
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]

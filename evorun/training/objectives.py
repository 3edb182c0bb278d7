"""Hyperparameters of weight updates, shared by a method's configuration and the trainer's job."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import Checked, Fraction, NonNegativeFloat, OneOf, PositiveFloat, PositiveInt

T = TypeVar("T")

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")
"""TRL's names for the ways to weight a batch's tokens; `cispo` also has different importance weights."""


@dataclass(kw_only=True)
class GradientSettings(Checked):
    """Hyperparameters of a policy-gradient update, part of the configuration of every method that makes one."""

    section = "method"

    minibatches: PositiveInt
    """Optimiser steps per batch."""
    kl: NonNegativeFloat
    """Weight of the divergence from the reference policy (beta)."""
    clip_low: NonNegativeFloat
    clip_high: PositiveFloat
    """Bounds on the ratio of a token's probability to the sampler's: beyond 1 - clip_low and 1 + clip_high a token has
    no gradient. With `cispo`, clip_low and clip_high are the bounds, and the clipped ratio still weights the token."""

    def require_bounds_of_cispo(self) -> None:
        """Raise ConfigError if a ratio of 1, that of the sampler's policy itself, is out of bounds."""
        if self.clip_low > 1 or self.clip_high < 1:
            raise ConfigError(
                "method.clip_low, method.clip_high: with cispo expected bounds of the ratio itself, on both sides of 1 "
                f"(its authors use 0.0 and 4.0), got {self.clip_low} and {self.clip_high}"
            )


CRITICS = ("full", "model", "head")
KL_ESTIMATORS = ("k1", "k3")
SCORED_AT = ("last", "after")


@dataclass(kw_only=True)
class ProximalSettings(Checked):
    """Hyperparameters of an update by PPO, part of the configuration of every method that makes one."""

    section = "method"

    epochs: PositiveInt
    """Passes over each batch."""
    minibatches: PositiveInt
    """Optimiser steps per pass."""
    kl: NonNegativeFloat
    """Weight of the divergence from the reference policy in the reward of each token (beta)."""
    kl_estimator: Annotated[str, OneOf(KL_ESTIMATORS)]
    """Estimator of a token's divergence. k1: the log-ratio; k3: Schulman's estimator, which is never negative."""
    gamma: Fraction
    """Discount of the rewards of later tokens."""
    gae_lambda: Fraction
    """Weight of later tokens in an advantage (lambda): 0 trusts only the critic, 1 only the rewards."""
    clip: PositiveFloat
    """A token whose probability has changed by a factor beyond 1 - clip or 1 + clip has no gradient."""
    value_clip: PositiveFloat | None
    """The same for the change of a value, as a difference; null: no bound."""
    value_weight: NonNegativeFloat
    """Weight of the value loss (vf)."""
    whiten: bool
    """Normalise a batch's advantages to mean 0 and variance 1."""
    score_at: Annotated[str, OneOf(SCORED_AT)]
    """last: the reward comes with the last token of each episode. after: it comes one step after the last token, except
    in the batch's longest episodes (as in TRL)."""
    critic: Annotated[str, OneOf(CRITICS)]
    """full: a copy of the model with a value head, all weights trained. model: a copy of the base weights with an
    adapter and a value head. head: the same on the policy's base weights: the same values in less memory."""
    popart: Annotated[float, Meta(gt=0, le=1)] | None
    """PopArt: the critic learns returns as deviations from their running mean, in running standard deviations (van
    Hasselt et al. 2016). This is the weight of a batch in the running statistics: 0.1 adapts to a new scale of rewards
    within about ten batches. `value_clip` and the value loss use this scale, too. Values do not change when the scale
    does. null: plain returns."""
    reset_critic: bool
    """Set the value head to 0 and forget its optimiser state at the first update after the rubric has changed. The
    layers below the head stay."""
    missing_eos_penalty: PositiveFloat | None
    """Subtracted from the reward of an episode whose last turn has no end-of-sequence token; null: nothing."""


def select_settings(kind: type[T], config: Any) -> T:
    """Return the settings of one kind from a method's configuration."""
    values = vars(config)
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]

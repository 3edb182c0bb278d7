"""Advantages and returns of a batch's tokens, by generalised advantage estimation under a critic.

Time counts the tokens that the policy drew, and they alone: what tools answered in between belongs to the step from
one of them to the next. So a row is cut down to its learned tokens before anything is estimated.

Estimated in float64 over the whole batch, by every process for itself: means are of no process's part.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorun.training.objectives import ProximalSettings

Floats = NDArray[np.float64]

LARGEST_LOG_RATIO = 20.0
"""Beyond it the ratio of two probabilities is cut: its exponential would soon be infinite."""

WHITENING = 1e-8
"""Added to the variance of advantages before they are divided by its root (TRL's)."""


class Judged(NamedTuple):
    """An episode of n learned tokens, as policy, reference policy and critic see it before an update."""

    reward: float
    own: Floats
    """Log-probabilities of the learned tokens under the policy: shape [n]."""
    old: Floats
    """The same under the policy that drew them, which may be another (another engine, other weights)."""
    reference: Floats
    """The same under the reference policy."""
    values: Floats
    """Of the state before each learned token and of that after the last one: shape [n + 1]."""


class Estimate(NamedTuple):
    """The estimates that an episode of n learned tokens is learned from."""

    advantages: Floats
    """Of the learned tokens: shape [n]."""
    returns: Floats
    """Of the states that the critic is trained on, from the first on: n of them, or n + 1 where the reward stands after
    the last token."""


def estimate(batch: Sequence[Judged], settings: ProximalSettings) -> tuple[list[Estimate], dict[str, float]]:
    """Return the estimates of a batch's episodes, each of one learned token at least, and figures of the batch.

    The reward of a token is -kl times its divergence from the reference policy; the episode's own reward is added to
    the last token's. With `score_at=after` it is a reward of its own one step later, of episodes with fewer tokens than
    the batch's longest: in TRL's arrays the longest have no room for it.
    """
    lengths = np.array([len(one.old) for one in batch])
    steps = np.arange(lengths.max())
    drawn = steps < lengths[:, None]
    ends = lengths - 1 + ((lengths < len(steps)) if settings.score_at == "after" else 0)
    valued = steps <= ends[:, None]

    divergence = np.zeros(drawn.shape)
    divergence[drawn] = np.concatenate([divergences(one, settings.kl_estimator) for one in batch])
    rewards = -settings.kl * divergence
    rewards[np.arange(len(batch)), ends] += [one.reward for one in batch]
    values = np.zeros(drawn.shape)
    values[valued] = np.concatenate([one.values[: end + 1] for one, end in zip(batch, ends, strict=True)])

    raw = advantages(rewards, values, settings.gamma, settings.gae_lambda)
    returns = raw + values
    of_tokens = whitened(raw[drawn]) if settings.whiten else raw[drawn]
    figures = {
        **({"kl": divergence[drawn].mean(), "episode_kl": divergence.sum(axis=1).mean()} if settings.kl else {}),
        "return": returns[valued].mean(),
        "return_spread": returns[valued].std(),
        "advantage_spread": raw[drawn].std(),
        "explained_variance": explained_variance(values[valued], returns[valued]),
        "sampler_kl": np.concatenate([k3(one.own - one.old) for one in batch]).mean(),
    }
    cut = zip(np.split(of_tokens, lengths.cumsum()[:-1]), returns, ends, strict=True)
    estimates = [Estimate(own, of_states[: end + 1]) for own, of_states, end in cut]
    return estimates, {name: float(value) for name, value in figures.items()}


def divergences(one: Judged, estimator: str) -> Floats:
    """Return an estimate of the divergence from the reference policy at each learned token.

    k1 is the log-ratio; k3 adds what makes it non-negative and leaves its mean as it is (Schulman, "Approximating KL
    divergence").
    """
    away = one.old - one.reference
    return away if estimator == "k1" else k3(-away)


def k3(log_ratio: Floats) -> Floats:
    """Return Schulman's third estimate of a divergence, of log p(x) / q(x) for samples x of q."""
    log_ratio = np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return np.expm1(log_ratio) - log_ratio


def advantages(rewards: Floats, values: Floats, gamma: float, gae_lambda: float) -> Floats:
    """Return the advantages of steps that begin in states of these values: arrays [episodes, steps], 0 past the end.

    Equations 11 and 12 of "High-dimensional continuous control using generalized advantage estimation"; an episode ends
    in a state of value 0. Their recursion is a linear filter backwards in time.
    """
    from scipy.signal import lfilter  # a second to import, and every trainer loads this module

    following = np.pad(values[:, 1:], ((0, 0), (0, 1)))
    surprise = rewards + gamma * following - values
    summed: Floats = lfilter([1.0], [1.0, -gamma * gae_lambda], surprise[:, ::-1], axis=1)[:, ::-1]
    return summed


def whitened(values: Floats) -> Floats:
    """Return the values with mean 0 and variance 1; a single one, or equal ones, all 0."""
    if len(values) < 2:
        return np.zeros_like(values)
    # of a sample, as TRL's
    deviations: Floats = (values - values.mean()) / np.sqrt(values.var(ddof=1) + WHITENING)
    return deviations


def explained_variance(values: Floats, returns: Floats) -> float:
    """Return the share of the variance of returns that the values explain: 1 at best; 0 where returns do not vary."""
    variance = returns.var()
    return float(1 - (returns - values).var() / variance) if variance > 0 else 0.0

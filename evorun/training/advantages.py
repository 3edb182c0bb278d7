"""Advantages and returns of a batch's tokens, by generalised advantage estimation under a critic.

Only tokens that the policy drew count as time steps; a tool's answer belongs to the step between two of them. A row is
therefore reduced to its learned tokens before anything is estimated.

Every process estimates in float64 over the whole batch, so that means do not depend on its share of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorun.training.objectives import ProximalSettings

Floats = NDArray[np.float64]

LARGEST_LOG_RATIO = 20.0
"""Bound on the log-ratio of two probabilities: far beyond it, the exponential would be infinite."""

WHITENING = 1e-8
"""Added to the variance of advantages before dividing by its square root (as in TRL)."""


class ScoredEpisode(NamedTuple):
    """An episode of n learned tokens, as scored by policy, reference policy and critic before an update."""

    reward: float
    own: Floats
    """Log-probabilities of the learned tokens under the policy: shape [n]."""
    old: Floats
    """The same under the policy that drew them, which may differ (another engine, other weights)."""
    reference: Floats
    """The same under the reference policy."""
    values: Floats
    """Values of the state before each learned token and of that after the last one: shape [n + 1]."""


class Estimate(NamedTuple):
    """The training targets of an episode of n learned tokens."""

    advantages: Floats
    """Advantages of the learned tokens: shape [n]."""
    returns: Floats
    """Returns of the states that the critic is trained on, in order: n, or n + 1 if the reward comes after the last
    token."""


def estimate(batch: Sequence[ScoredEpisode], settings: ProximalSettings) -> tuple[list[Estimate], dict[str, float]]:
    """Return the estimates of a batch's episodes, each with at least one learned token, and figures of the batch.

    The reward of a token is -kl times its divergence from the reference policy. The last token's reward also contains
    the episode's reward. With `score_at=after` the episode's reward comes one step later instead, except in the batch's
    longest episodes, for which TRL's arrays have no room.
    """
    lengths = np.array([len(episode.old) for episode in batch])
    steps = np.arange(lengths.max())
    drawn = steps < lengths[:, None]
    ends = lengths - 1 + ((lengths < len(steps)) if settings.score_at == "after" else 0)
    valued = steps <= ends[:, None]

    divergence = np.zeros(drawn.shape)
    divergence[drawn] = np.concatenate([divergences(episode, settings.kl_estimator) for episode in batch])
    rewards = -settings.kl * divergence
    rewards[np.arange(len(batch)), ends] += [episode.reward for episode in batch]
    values = np.zeros(drawn.shape)
    values[valued] = np.concatenate([episode.values[: end + 1] for episode, end in zip(batch, ends, strict=True)])

    raw = advantages(rewards, values, settings.gamma, settings.gae_lambda)
    returns = raw + values
    of_tokens = whitened(raw[drawn]) if settings.whiten else raw[drawn]
    figures = {
        **({"kl": divergence[drawn].mean(), "episode_kl": divergence.sum(axis=1).mean()} if settings.kl else {}),
        "return": returns[valued].mean(),
        "return_spread": returns[valued].std(),
        "advantage_spread": raw[drawn].std(),
        "explained_variance": explained_variance(values[valued], returns[valued]),
        "sampler_kl": np.concatenate([k3(episode.own - episode.old) for episode in batch]).mean(),
    }
    cut = zip(np.split(of_tokens, lengths.cumsum()[:-1]), returns, ends, strict=True)
    estimates = [Estimate(own, of_states[: end + 1]) for own, of_states, end in cut]
    return estimates, {name: float(value) for name, value in figures.items()}


def divergences(episode: ScoredEpisode, estimator: str) -> Floats:
    """Return an estimate of the divergence from the reference policy at each learned token.

    k1 is the log-ratio. k3 adds a term that makes it non-negative without changing its mean (Schulman, "Approximating
    KL divergence").
    """
    away = episode.old - episode.reference
    return away if estimator == "k1" else k3(-away)


def k3(log_ratio: Floats) -> Floats:
    """Return Schulman's estimator k3 of KL(q || p) from log p(x) / q(x) at samples x of q."""
    log_ratio = np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return np.expm1(log_ratio) - log_ratio


def advantages(rewards: Floats, values: Floats, gamma: float, gae_lambda: float) -> Floats:
    """Return the advantages of steps from the rewards and the values of their states: shape [episodes, steps].

    All arrays are 0 past an episode's end, and an episode ends in a state of value 0. Equations 11 and 12 of
    "High-dimensional continuous control using generalized advantage estimation", backwards in time.
    """
    following = np.pad(values[:, 1:], ((0, 0), (0, 1)))
    summed = rewards + gamma * following - values
    for step in range(values.shape[1] - 1, 0, -1):
        summed[:, step - 1] += gamma * gae_lambda * summed[:, step]
    return summed


def whitened(values: Floats) -> Floats:
    """Return the values shifted and scaled to mean 0 and variance 1; a single value, or equal ones, become 0."""
    if len(values) < 2:
        return np.zeros_like(values)
    # The sample variance, as in TRL.
    deviations: Floats = (values - values.mean()) / np.sqrt(values.var(ddof=1) + WHITENING)
    return deviations


def explained_variance(values: Floats, returns: Floats) -> float:
    """Return the share of the variance of returns that the values explain: at most 1; 0 if returns do not vary."""
    variance = returns.var()
    return float(1 - (returns - values).var() / variance) if variance > 0 else 0.0

"""Advantages of the completions of one group, from their rewards alone: arrays of shape [n] in and out.

By the mean (E-SPL, equation 2), by the mean of the others (leave-one-out), or by entropic weights, which raise the
group's maximum instead of its mean (TTT-Discover, arXiv 2601.16175). Equal rewards always have advantages of exactly 0:
rounding must not make advantages out of nothing.
"""

import math
from collections.abc import Sequence

import numpy as np

MAX_BETA = 1e6
"""Largest adaptive beta (TTT-Discover's released code)."""
MIN_MEAN = 1e-12
"""Smallest mean weight of the others, so that weights stay finite (the released code adds it)."""
BISECTIONS = 60
"""Halvings of the interval that holds beta (the released code)."""


def subtract_mean(rewards: Sequence[float]) -> list[float]:
    """Return each reward less the mean of all."""
    # The mean of equal rewards must be exact.
    mean = rewards[0] if len(set(rewards)) == 1 else sum(rewards) / max(len(rewards), 1)
    return [reward - mean for reward in rewards]


def subtract_mean_of_others(rewards: Sequence[float]) -> list[float]:
    """Return each reward less the mean of the others; a single reward has none, and an advantage of 0."""
    # A reward's distance to the mean of the others is n / (n - 1) times its distance to the mean of all.
    scale = len(rewards) / max(len(rewards) - 1, 1)
    return [scale * advantage for advantage in subtract_mean(rewards)]


def weight_entropically(rewards: Sequence[float], beta: float | None) -> list[float]:
    """Return w - 1, where w is a completion's exp(beta reward) relative to the mean of the others'.

    beta: None chooses it for the group (`find_beta`). No beta makes the weights of two unequal completions diverge from
    uniform by ln 2, so a group of fewer than three then has advantages of 0 (ours: the released code has weights of up
    to 1e12 there).
    """
    if len(rewards) < (3 if beta is None else 2):
        return [0.0] * len(rewards)
    values = np.asarray(rewards, dtype=np.float64)
    weights = np.exp((find_beta(values) if beta is None else beta) * (values - values.max()))
    # Summed one by one: the total less a weight of almost all of it would lose the others.
    of_others = np.array([np.delete(weights, at).mean() for at in range(len(weights))])
    return [float(advantage) for advantage in weights / np.maximum(of_others, MIN_MEAN) - 1]


def find_beta(rewards: np.ndarray) -> float:
    """Return the beta at which softmax(beta rewards) diverges from uniform by ln 2; at most `MAX_BETA`.

    Where half of the rewards or more are the largest, no beta reaches ln 2, and the result is `MAX_BETA`.
    """
    low, high = 0.0, 1.0
    while high < MAX_BETA and divergence(high * rewards) < math.log(2):
        high = min(2 * high, MAX_BETA)
    if divergence(high * rewards) < math.log(2):
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle * rewards) < math.log(2) else (low, middle)
    return high


def divergence(logits: np.ndarray) -> float:
    """Return KL(softmax(logits) || uniform), in nats; it never falls where all logits grow by a common factor."""
    logits = logits - logits.max()
    log_softmax = logits - math.log(np.exp(logits).sum())
    return float((np.exp(log_softmax) * (log_softmax + math.log(len(logits)))).sum())

"""Confidence intervals of the figures that a run reports."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion, as fractions in [0, 1].

    With `n` = 0 nothing is known and the interval is (0, 1). Raises ValueError unless 0 <= successes <= n.
    Source: E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n, got successes={successes}, n={n}")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and n the bound is exact on paper; rounding must not move it inside.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def bootstrap_mean(
    values: Sequence[float], rng: np.random.Generator, confidence: float = 0.95, resamples: int = 9_999
) -> tuple[float, float] | None:
    """Return the BCa bootstrap interval of the mean of `values`, or None with fewer than two of them.

    Source: B. Efron (1987), "Better bootstrap confidence intervals". The interval of equal values is that value.
    """
    if len(values) < 2:
        return None
    sample = np.asarray(values, dtype=float)
    if np.ptp(sample) == 0:  # BCa divides by the spread
        return float(sample[0]), float(sample[0])
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sample,), np.mean, confidence_level=confidence, n_resamples=resamples, batch=256, rng=rng
    ).confidence_interval
    return float(interval.low), float(interval.high)

"""TrueSkill: Gaussian beliefs in skills, moved by a ranking (Herbrich et al., 2006; E-SPL, appendix B)."""

from math import copysign, exp, inf, isfinite, pi, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtri

Floats = npt.NDArray[np.float64]

CONVERGED = 1e-9
"""Change of a message, relative to its player's prior, below which a sweep changes nothing (ours)."""
MOST_SWEEPS = 1_000
"""Sweeps at most (ours): a handful is usual; without convergence the messages of the last sweep are taken."""


class Ratings(NamedTuple):
    """Beliefs in the skills of n players: normal distributions."""

    mean: Floats
    """Shape (n,)."""
    sd: Floats
    """Shape (n,)."""


def rate(
    mean: npt.ArrayLike,
    sd: npt.ArrayLike,
    ranks: npt.ArrayLike,
    *,
    beta: float,
    tau: float,
    draw_probability: float,
) -> Ratings:
    """Return the beliefs in n players' skills after a ranking of all of them.

    `mean` and `sd`, of shape (n,), are the beliefs before. `ranks`, of shape (n,): lower is better, equal is a tie.
    beta: sd of a performance around its skill. tau: sd of a skill's drift before each ranking. draw_probability: of two
    players of equal skill.

    Expectation propagation over the pairs that are neighbours in the ranking, until it converges. Tied players stand in
    the order given, which matters a little: a chain of neighbours is not symmetric in them.

    Raises ValueError for arrays of unequal lengths, values that are not finite, an sd or beta that is not positive, a
    negative tau, or a draw_probability outside (0, 1).
    """
    means, sds, places = (np.asarray(one, dtype=np.float64) for one in (mean, sd, ranks))
    if not means.shape == sds.shape == places.shape or means.ndim != 1:
        raise ValueError(f"expected three arrays of shape (n,), got {means.shape}, {sds.shape} and {places.shape}")
    if not (np.isfinite([means, sds, places]).all() and (sds > 0).all()):
        raise ValueError("expected finite means and ranks, and finite positive standard deviations")
    if not (isfinite(beta) and beta > 0 and isfinite(tau) and tau >= 0 and 0 < draw_probability < 1):
        raise ValueError(
            f"expected beta > 0, tau >= 0 and a draw probability in (0, 1), got {beta}, {tau} and {draw_probability}"
        )
    drifted = sds**2 + tau**2
    order = np.argsort(places, kind="stable")
    margin = float(ndtri((draw_probability + 1) / 2)) * sqrt(2) * beta
    ties = np.diff(places[order]) == 0
    precision, shift = _messages(means[order].tolist(), (drifted + beta**2)[order].tolist(), ties.tolist(), margin)
    # From performances back to skills, through the noise between them.
    message = np.empty((2, len(order)))
    message[:, order] = np.array([precision, shift]) / (1 + beta**2 * np.array(precision))
    variance = 1 / (1 / drifted + message[0])
    return Ratings(variance * (means / drifted + message[1]), np.sqrt(variance))


def _messages(
    means: list[float], variances: list[float], ties: list[bool], margin: float
) -> tuple[list[float], list[float]]:
    """Return what the ranking says of each performance: precision and precision times mean, best player first.

    means, variances: of the performances before the ranking. ties: whether each pair of neighbours is a draw.
    """
    # Scalars, not arrays: a ranking has a few players, and each pair waits for the one before it.
    priors = [(1 / variance, mean / variance) for mean, variance in zip(means, variances, strict=True)]
    precision, shift = (list(one) for one in zip(*priors, strict=True)) if priors else ([], [])
    sent = [((0.0, 0.0), (0.0, 0.0)) for _ in ties]
    pairs = [*range(len(ties)), *range(len(ties) - 2, 0, -1)]  # down the ranking and up again
    for _ in range(MOST_SWEEPS if len(ties) > 1 else 1):
        change = 0.0
        for pair in pairs:
            cavity = [(precision[pair + k] - sent[pair][k][0], shift[pair + k] - sent[pair][k][1]) for k in (0, 1)]
            new = _pair(*cavity, margin, ties[pair])
            for k in (0, 1):
                prior = priors[pair + k][0]
                moved = max(abs(new[k][0] - sent[pair][k][0]) / prior, abs(new[k][1] - sent[pair][k][1]) / sqrt(prior))
                change = max(change, moved)
                precision[pair + k], shift[pair + k] = cavity[k][0] + new[k][0], cavity[k][1] + new[k][1]
            sent[pair] = new
        if change < CONVERGED:
            break
    # Sums of the messages themselves: the difference of posterior and prior would lose digits.
    told = [[0.0] * len(means), [0.0] * len(means)]
    for pair, both in enumerate(sent):
        for k in (0, 1):
            for natural in (0, 1):
                told[natural][pair + k] += both[k][natural]
    return told[0], told[1]


_Natural = tuple[float, float]


def _pair(better: _Natural, worse: _Natural, margin: float, draw: bool) -> tuple[_Natural, _Natural]:
    """Return the messages of one pair to its two performances, given what all else says of them."""
    (mean_i, var_i), (mean_j, var_j) = ((shift / precision, 1 / precision) for precision, shift in (better, worse))
    c = sqrt(var_i + var_j)
    t, epsilon = (mean_i - mean_j) / c, margin / c
    v, w = _draw(t, epsilon) if draw else _win(t - epsilon)
    messages = []
    for (precision, shift), mean, variance, sign in ((better, mean_i, var_i, 1), (worse, mean_j, var_j, -1)):
        posterior = 1 / (variance * (1 - variance / c**2 * w))
        moved = mean + sign * variance / c * v
        messages.append((max(0.0, posterior - precision), posterior * moved - shift))
    return messages[0], messages[1]


def _mills(x: float) -> float:
    """Return cdf / pdf of the standard normal distribution at x; finite in the lower tail, where both vanish."""
    return sqrt(pi / 2) * float(erfcx(-x / sqrt(2)))


def _win(x: float) -> tuple[float, float]:
    """Return v and w of a win at x = t - epsilon."""
    mills = _mills(x)
    v = 0.0 if mills == inf else 1 / mills
    return v, min(1.0, max(0.0, v * (v + x)))


def _draw(t: float, epsilon: float) -> tuple[float, float]:
    """Return v and w of a draw."""
    # By the symmetry in t, and relative to the pdf at the nearer bound: nothing over- or underflows far out.
    near, far = epsilon - abs(t), -epsilon - abs(t)
    ratio = exp(-2 * epsilon * abs(t))  # of the pdf at the farther bound to that at the nearer one
    density = 1 / (_mills(near) - ratio * _mills(far))
    v = density * (ratio - 1)
    w = v * v + density * (near - ratio * far)
    return copysign(v, -t) if t else 0.0, min(1.0, max(0.0, w))

"""TrueSkill: Gaussian beliefs about skills, updated by a ranking (Herbrich et al., 2006; E-SPL, appendix B)."""

from math import copysign, exp, inf, isclose, isfinite, pi, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtri

Floats = npt.NDArray[np.float64]

CONVERGED = 1e-8
"""The sweeps end when no message changes by more, relative to itself and to the performance's prior (ours)."""
MAX_SWEEPS = 200
"""Maximum number of sweeps (ours); a handful is usual. Without convergence, the last sweep's messages count."""


class Ratings(NamedTuple):
    """Beliefs about the skills of n players: normal distributions."""

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
    """Return the beliefs about n players' skills after a ranking of all of them.

    `mean` and `sd`, of shape (n,), are the beliefs before. `ranks`, of shape (n,): lower is better, equal is a tie.
    `beta` is the sd of a performance around its skill, `tau` the sd of a skill's drift before each ranking.
    `draw_probability` is that of two players of equal skill.

    Expectation propagation runs over pairs of neighbours in the ranking until it converges. Tied players keep the order
    given, which matters a little: a chain of neighbours is not symmetric in them.

    Raises ValueError for arrays of unequal lengths, values that are not finite, or an sd or beta that is not positive.
    It also rejects a negative tau and a draw_probability outside (0, 1).
    """
    means, sds, places = (np.asarray(values, dtype=np.float64) for values in (mean, sd, ranks))
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
    messages = _messages(
        means[order].tolist(),
        (drifted + beta**2)[order].tolist(),
        (np.diff(places[order]) == 0).tolist(),
        float(ndtri((draw_probability + 1) / 2)) * sqrt(2) * beta,
    )
    precision, shift = np.empty((2, len(order)))
    precision[order], shift[order] = np.reshape(messages, (-1, 2)).T
    # From performances back to skills, through the noise between them.
    loss = 1 + beta**2 * precision
    variance = 1 / (1 / drifted + precision / loss)
    return Ratings(variance * (means / drifted + shift / loss), np.sqrt(variance))


class _Natural(NamedTuple):
    """A normal distribution, or a message about one."""

    precision: float
    shift: float
    """Precision times mean."""

    def times(self, other: "_Natural") -> "_Natural":
        return _Natural(self.precision + other.precision, self.shift + other.shift)


def _messages(means: list[float], variances: list[float], ties: list[bool], margin: float) -> list[_Natural]:
    """Return the ranking's message about each performance, best player first.

    means, variances: of the performances before the ranking. ties: whether each pair of neighbours is a draw.
    """
    # Scalars, not arrays: a ranking has a few players, and each pair waits for the one before it.
    priors = [_Natural(1 / variance, mean / variance) for mean, variance in zip(means, variances, strict=True)]
    from_above = [_Natural(0.0, 0.0)] * len(priors)  # of the pair with the player above, and with the one below
    from_below = [_Natural(0.0, 0.0)] * len(priors)
    pairs = [*range(len(ties)), *range(len(ties) - 2, 0, -1)]  # down the ranking and up again
    for _ in range(MAX_SWEEPS if len(ties) > 1 else 1):
        before = [*from_above, *from_below]
        for upper in pairs:
            lower = upper + 1
            better, worse = priors[upper].times(from_above[upper]), priors[lower].times(from_below[lower])
            from_below[upper], from_above[lower] = _pair(better, worse, margin, ties[upper])
        after = zip(before, [*from_above, *from_below], variances * 2, strict=True)
        if all(
            isclose(old.precision, new.precision, rel_tol=CONVERGED, abs_tol=CONVERGED / variance)
            and isclose(old.shift, new.shift, rel_tol=CONVERGED, abs_tol=CONVERGED / sqrt(variance))
            for old, new, variance in after
        ):
            break
    return [above.times(below) for above, below in zip(from_above, from_below, strict=True)]


def _pair(better: _Natural, worse: _Natural, margin: float, draw: bool) -> tuple[_Natural, _Natural]:
    """Return the messages of one pair to its two performances, given all other messages about them."""
    variances = 1 / better.precision, 1 / worse.precision
    means = better.shift * variances[0], worse.shift * variances[1]
    c = sqrt(sum(variances))
    t, epsilon = (means[0] - means[1]) / c, margin / c
    v, w = _draw(t, epsilon) if draw else _win(t - epsilon)

    def message(cavity: _Natural, mean: float, variance: float, sign: int) -> _Natural:
        precision = 1 / (variance * (1 - variance / c**2 * w))
        moved = mean + sign * variance / c * v
        return _Natural(max(0.0, precision - cavity.precision), precision * moved - cavity.shift)

    return message(better, means[0], variances[0], 1), message(worse, means[1], variances[1], -1)


def _mills(x: float) -> float:
    """Return cdf / pdf of the standard normal distribution at x; finite in the lower tail, where both vanish."""
    return sqrt(pi / 2) * float(erfcx(-x / sqrt(2)))


def _win(x: float) -> tuple[float, float]:
    """Return v and w of a win at x = t - epsilon: the shifts of a truncated normal's mean and variance."""
    mills = _mills(x)
    v = 0.0 if mills == inf else 1 / mills
    # Far below 0, v + x is only rounding error, and an asymptotic series is exact.
    w = v * (v + x) if x > -300 else 1 - 1 / x**2 + 6 / x**4
    return v, min(1.0, max(0.0, w))


def _draw(t: float, epsilon: float) -> tuple[float, float]:
    """Return v and w of a draw."""
    # Uses the symmetry in t, relative to the pdf at the nearer bound: nothing over- or underflows in the tails.
    near, far = epsilon - abs(t), -epsilon - abs(t)
    ratio = exp(-2 * epsilon * abs(t))  # of the pdf at the farther bound to that at the nearer one
    if ratio < 1e-20:  # the farther bound is negligible
        v, w = _win(near)
        return copysign(v, -t), w
    density = 1 / (_mills(near) - ratio * _mills(far))
    v = density * (1 - ratio)
    w = v**2 + density * (near - ratio * far)
    return copysign(v, -t), min(1.0, max(0.0, w))

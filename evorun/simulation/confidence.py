"""Simulated confidences of a completion's tokens: a level of the whole completion, and fluctuations around it.

Typical values of language models (ours): 15 nats, 1 between completions, 1 between passages, 4 between tokens.
"""

from statistics import NormalDist

import numpy as np

from evorun.models.confidence import Confidences

_LEVEL, _BETWEEN_COMPLETIONS, _BETWEEN_PASSAGES, _BETWEEN_TOKENS = 15.0, 1.0, 1.0, 4.0
_PASSAGES = 8
"""Passages of a completion; each has its own level."""
_EXTREME = 1e-6
"""Skills of 0 and 1 stand for this distance from them: a normal distribution has no certain order."""


def draw_confidences(tokens: int, degree: float | None, skill: float, rng: np.random.Generator) -> Confidences:
    """Return a confidence for each token.

    degree: how good the completion is, in [0, 1]; None: unknown, so that the confidence says nothing. skill:
    probability that the mean of a right completion exceeds that of a wrong one.
    """
    # Two normal variables of variance 1 are in the right order with this probability at this distance.
    distance = 2**0.5 * NormalDist().inv_cdf(min(max(skill, _EXTREME), 1 - _EXTREME))
    shift = 0.0 if degree is None else distance * (degree - 0.5)
    level = _LEVEL + _BETWEEN_COMPLETIONS * (shift + rng.standard_normal())
    passages = rng.standard_normal(_PASSAGES)[np.arange(tokens) * _PASSAGES // max(tokens, 1)]
    around = _BETWEEN_PASSAGES * passages + _BETWEEN_TOKENS * rng.standard_normal(tokens)
    # Without their mean, so that the completion's is the level.
    drawn: Confidences = np.maximum(level + around - around.mean(), 0).astype(np.float16)
    return drawn

"""Elo ratings: a running estimate of strength, moved by each game towards its outcome (Elo, 1978)."""

from math import log

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]

CHESS_SCALE = 400 / log(10)
"""Points a logit in chess, and in Chatbot Arena (Chiang et al., 2024): 400 points are odds of 10 to 1."""


def rate(
    ratings: npt.ArrayLike,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    k: float,
    scale: float = CHESS_SCALE,
) -> Floats:
    """Return the ratings after games between the items `first[i]` and `second[i]`, played in this order.

    `ratings`, of shape (items,), are those before. `scores[i]` is the score of `first[i]`: 1 for a win, 0.5 for a draw,
    0 for a loss. A game moves both ratings, in opposite directions, by `k` times the score less its expectation, the
    logistic function of their difference / `scale`. Elo keeps no uncertainty, and its ratings depend on the order of
    the games: Bradley-Terry utilities, fitted to all of them at once, do not.

    Raises ValueError for arrays of unequal lengths, IndexError for an item that has no rating.
    """
    updated = np.array(ratings, dtype=np.float64)
    games = (np.asarray(one).tolist() for one in (first, second, scores))
    for one, other, score in zip(*games, strict=True):
        surprise = score - expit((updated[one] - updated[other]) / scale)
        updated[one] += k * surprise
        updated[other] -= k * surprise
    return updated

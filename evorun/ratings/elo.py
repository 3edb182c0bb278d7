"""Elo ratings: a running estimate of strength, moved by each match towards its outcome (Elo, 1978)."""

from math import inf, log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SCALE = 400 / log(10)
"""Points per logit: 400 points are odds of 10 to 1, as in chess and in Chatbot Arena (Chiang et al., 2024)."""

_FARTHEST = 300.0
"""Orders of magnitude of the odds beyond which an expectation counts as 0; 10.0**309 would raise an error."""


def rate(
    n_players: int,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    score: npt.ArrayLike,
    *,
    k: float = 4,
    initial: float = 1000,
) -> Floats:
    """Return the ratings of `n_players` after matches between `first[i]` and `second[i]`, played in this order.

    `first` and `second` are indices of players, of shape (matches,). `score[i]` is the score of `first[i]`: 1 for a
    win, 0.5 for a tie, 0 for a loss. All players start at the rating `initial`. A match moves each rating by `k` times
    the difference between score and expected score. The expected score is 1 / (1 + 10^((opponent - own) / 400)).

    Elo keeps no uncertainty, and its ratings depend on the order of the matches. Bradley-Terry utilities, fitted to all
    matches at once, do not. The defaults are MPO's K (section 3.2) and Chatbot Arena's initial rating. Each player's
    expected score is computed separately, as in MPO's released code: its logs then give the published ratings to the
    last bit.

    Raises ValueError for arrays of other lengths or types, an unknown player, or a player that meets itself. It also
    rejects scores other than 1, 0.5 and 0, a `k` outside [0, inf) and an `initial` that is not finite.
    """
    if n_players < 0:
        raise ValueError(f"n_players: expected a number >= 0, got {n_players}")
    if not 0 <= k < inf:
        raise ValueError(f"k: expected a finite number >= 0, got {k}")
    if not -inf < initial < inf:
        raise ValueError(f"initial: expected a finite number, got {initial}")
    firsts, seconds = _players("first", first, n_players), _players("second", second, n_players)
    scores = np.asarray(score, dtype=np.float64)
    if not firsts.shape == seconds.shape == scores.shape:
        shapes = f"{firsts.shape}, {seconds.shape}, {scores.shape}"
        raise ValueError(f"first, second and score: expected equal lengths, got shapes {shapes}")
    if (firsts == seconds).any():
        raise ValueError(
            f"expected two players in each match, got player {firsts[firsts == seconds][0]} against itself"
        )
    if not np.isin(scores, (0, 0.5, 1)).all():
        raise ValueError(f"score: expected 1, 0.5 or 0, got {scores[~np.isin(scores, (0, 0.5, 1))][0]}")
    # Python's floats, not arrays: each match waits for the one before it, and numpy's scalars are four times as slow.
    ratings = [float(initial)] * n_players
    for i, j, share in zip(firsts.tolist(), seconds.tolist(), scores.tolist(), strict=True):
        behind = (ratings[j] - ratings[i]) / 400
        # Two expectations, not one and its complement: they differ in the last bit, and so would MPO's ratings.
        ratings[i] += k * (share - 1 / (1 + 10.0 ** min(behind, _FARTHEST)))
        ratings[j] += k * ((1 - share) - 1 / (1 + 10.0 ** min(-behind, _FARTHEST)))
    return np.array(ratings, dtype=np.float64)


def _players(name: str, values: npt.ArrayLike, n_players: int) -> npt.NDArray[np.int64]:
    """Return indices of players as an array of shape (matches,). Raises ValueError."""
    indices = np.asarray(values)
    # An empty list has numpy's default type, float.
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected integers of shape (matches,), got {indices.dtype} of shape {indices.shape}")
    if indices.size and (indices.min() < 0 or indices.max() >= n_players):
        raise ValueError(f"{name}: expected players 0..{n_players - 1}, got {indices.min()}..{indices.max()}")
    return indices.astype(np.int64)

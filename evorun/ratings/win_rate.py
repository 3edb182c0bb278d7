"""Win rates: the share of its duels that an item won, whoever it met."""

import numpy as np
import numpy.typing as npt


def log_odds(
    n_items: int, winners: npt.ArrayLike, losers: npt.ArrayLike, scores: npt.ArrayLike, *, pseudo_count: float
) -> npt.NDArray[np.float64]:
    """Return the logit of each item's win rate, of shape (n_items,).

    `winners[k]` takes the share `scores[k]` of the win of duel k, `losers[k]` the rest. Each item gets `pseudo_count`
    extra wins and as many losses: otherwise one win in one duel would be infinitely good.
    """
    ahead, behind = np.asarray(winners, dtype=np.int64), np.asarray(losers, dtype=np.int64)
    share = np.asarray(scores, dtype=np.float64)
    wins = np.bincount(ahead, share, n_items) + np.bincount(behind, 1 - share, n_items)
    losses = np.bincount(ahead, 1 - share, n_items) + np.bincount(behind, share, n_items)
    return np.asarray(np.log((wins + pseudo_count) / (losses + pseudo_count)))

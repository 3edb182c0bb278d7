"""Swiss pairing by ratings (V1-Infer, arXiv 2603.04304): who meets whom next, and the weighted win rates.

Two guards that the paper's pseudo-code lacks are noted where they stand; the caller cuts a round at its budget.
"""

import numpy as np
import numpy.typing as npt

POINTS = 9
"""Largest difference of two ratings, from 1 to 10."""


class Swiss:
    """The state of a tournament of `n` items: weighted win rates, numbers of opponents, and pairs that have met."""

    def __init__(self, n: int, *, min_opponents: int, window: int, min_weight: float) -> None:
        """min_opponents, window, min_weight: the paper's d_min (2), h (8) and tau (0.1)."""
        self._min_opponents, self._window, self._min_weight = min_opponents, window, min_weight
        self._opponents = [0] * n
        self._met: set[frozenset[int]] = set()
        self._weights, self._wins = np.zeros(n), np.zeros(n)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The win rates mu, of shape (n,): weighted by the margins of ratings, 0.5 without evidence."""
        unknown = self._weights == 0
        rates: npt.NDArray[np.float64] = np.where(unknown, 0.5, self._wins / np.where(unknown, 1.0, self._weights))
        return rates

    def pair(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        """Return the next round: disjoint pairs, of which the random first item is shown first; empty at the end.

        Phase 1 gives everybody `min_opponents` opponents. Phase 2 lets neighbours by win rate meet. Guard: where phase
        1 finds no pair, as with two items that have met, phase 2 begins; two items have none.
        """
        pairs = self._pair_few_opponents(rng) or (self._pair_neighbours() if len(self._opponents) > 2 else [])
        swaps = (rng.random(len(pairs)) < 0.5).tolist()
        return [(j, i) if swap else (i, j) for (i, j), swap in zip(pairs, swaps, strict=True)]

    def update(self, i: int, j: int, ratings: tuple[float, float] | None) -> None:
        """Add the ratings of two items that have met; None: they could not be read, and are no evidence (ours)."""
        if (pair := frozenset((i, j))) not in self._met:
            self._met.add(pair)
            self._opponents[i] += 1
            self._opponents[j] += 1
        if ratings is not None:
            weight, score = weigh(ratings, self._min_weight)
            for item, share in ((i, score), (j, 1 - score)):
                self._weights[item] += weight
                self._wins[item] += weight * share

    def _pair_few_opponents(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        """Pair each item that lacks opponents with the closest one that it has not met; ties at random."""
        mean, order = self.mean.tolist(), rng.permutation(len(self._opponents)).tolist()
        free, pairs = dict.fromkeys(order), list[tuple[int, int]]()
        lacking = [i for i in order if self._opponents[i] < self._min_opponents]
        for i in sorted(lacking, key=self._opponents.__getitem__):
            unmet = [j for j in free if j != i and frozenset((i, j)) not in self._met]
            if i in free and unmet:
                *_, j = min((abs(mean[i] - mean[j]), place, j) for place, j in enumerate(unmet))
                pairs.append((i, j))
                del free[i], free[j]
        return pairs

    def _pair_neighbours(self) -> list[tuple[int, int]]:
        """Pair items from the highest win rate down, each with the closest of the next `window` free ones."""
        mean = self.mean.tolist()
        free, pairs = sorted(range(len(mean)), key=lambda i: -mean[i]), list[tuple[int, int]]()
        while len(free) > 1:
            i = free.pop(0)
            near = free[: self._window]
            *_, j = min((abs(mean[i] - mean[j]), frozenset((i, j)) in self._met, j) for j in near)
            free.remove(j)
            pairs.append((i, j))
        return pairs


def weigh(ratings: tuple[float, float], min_weight: float) -> tuple[float, float]:
    """Return the weight of a comparison, in [min_weight, 1], and the first item's score in it: 1, 0.5 or 0."""
    first, second = ratings
    return max(abs(first - second) / POINTS, min_weight), 0.5 + 0.5 * ((first > second) - (first < second))

"""Bradley-Terry as a logistic regression on weighted matches: utilities of a few players beside covariates' effects.

`evorun.ratings.bradley_terry` fits thousands of items to duels. Here each match has a weight, so that it can be drawn
again for bootstrap intervals, and covariates: with the difference of the responses' log lengths among them, the
utilities are those at equal length, as in length-controlled win rates (Dubois et al., 2024).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PRIOR_SD = 10.0
"""Standard deviation of the normal prior of utilities and effects, in logits (ours): who has won every match stays
finite; a few dozen matches with both outcomes outweigh it a thousand times."""

TOLERANCE = 1e-11
"""Norm of the gradient, relative to the matches, at which a fit stops (ours)."""
MOST_STEPS = 200
"""Newton steps at most (ours): about ten are usual."""


class Fit(NamedTuple):
    """Utilities and effects in logits."""

    utilities: Floats
    """Of shape (players,); their sum is 0."""
    effects: Floats
    """Of shape (covariates,): what a unit of each adds to the utility of the first player."""


class Intervals(NamedTuple):
    """The ends of 95 % intervals."""

    low: Fit
    high: Fit


class PairedLogit:
    """Matches: the first player wins with probability sigma(u_first - u_second + covariates . effects).

    A score of 0.5 is half a win each, as everywhere in this package.
    """

    def __init__(
        self,
        n_players: int,
        first: npt.ArrayLike,
        second: npt.ArrayLike,
        score: npt.ArrayLike,
        covariates: npt.ArrayLike | None = None,
        *,
        prior_sd: float = PRIOR_SD,
    ) -> None:
        """first, second: players, of shape (matches,), in 0..n_players - 1. score: of `first`, in [0, 1].

        covariates: of shape (matches, covariates). Matches without any are counted by pair: a fit then costs no more
        for a million of them.
        """
        self.n_players = n_players
        self._score = np.asarray(score, dtype=np.float64)
        one, other = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
        if covariates is None:
            pairs, self._row = np.unique(one * n_players + other, return_inverse=True)
            self._one, self._other = np.divmod(pairs, max(n_players, 1))
            self._covariates = np.zeros((len(pairs), 0))
        else:
            self._row, self._one, self._other = np.arange(len(one)), one, other
            self._covariates = np.asarray(covariates, dtype=np.float64)
        self._precision = 1 / prior_sd**2

    def fit(self, weights: npt.ArrayLike | None = None, *, start: Fit | None = None) -> Fit:
        """Return the mode of the posterior, by Newton's method. weights: of shape (matches,), 1 each by default."""
        given = np.ones(len(self._score)) if weights is None else np.asarray(weights, dtype=np.float64)
        played, won = (
            np.bincount(self._row, values, len(self._one)).astype(np.float64) for values in (given, given * self._score)
        )
        found = np.zeros(self.n_players + self._covariates.shape[1])
        if start is not None:
            found = np.concatenate([start.utilities, start.effects])
        gradient, hessian = self._derivatives(found, played, won)
        for _ in range(MOST_STEPS):
            norm = float(np.linalg.norm(gradient))
            if norm <= TOLERANCE * (1 + played.sum()):
                break
            step, size = np.linalg.solve(hessian, gradient), 1.0
            # The norm, not the loss, which no longer changes in floating point near the mode; see bradley_terry.
            while True:
                gradient, hessian = self._derivatives(found - size * step, played, won)
                if np.linalg.norm(gradient) <= (1 - 1e-4 * size) * norm or size < TOLERANCE:
                    break
                size /= 2
            found = found - size * step
        utilities = found[: self.n_players]
        # differences are all that matches tell of utilities
        return Fit(utilities - (utilities.mean() if len(utilities) else 0), found[self.n_players :])

    def _derivatives(self, at: Floats, played: Floats, won: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian of the negative log posterior."""
        n, one, other, x = self.n_players, self._one, self._other, self._covariates
        chance = expit(at[one] - at[other] + x @ at[n:])
        surprise, curvature = played * chance - won, played * chance * (1 - chance)
        gradient = np.concatenate([np.bincount(one, surprise, n) - np.bincount(other, surprise, n), x.T @ surprise])
        hessian = np.zeros((len(at), len(at)))
        met = np.bincount(one * n + other, curvature, n * n).reshape(n, n)
        met = met + met.T
        hessian[:n, :n] = np.diag(met.sum(axis=1)) - met
        for column, values in enumerate(x.T, start=n):
            pull = curvature * values
            hessian[column, :n] = np.bincount(one, pull, n) - np.bincount(other, pull, n)
        hessian[:n, n:] = hessian[n:, :n].T
        hessian[n:, n:] = x.T @ (curvature[:, None] * x)
        hessian[np.diag_indices(len(at))] += self._precision
        return gradient + self._precision * at, hessian

    def intervals(self, fitted: Fit, draws: Iterable[npt.ArrayLike], confidence: float = 0.95) -> Intervals:
        """Return percentile intervals over fits to matches that were drawn again: each of `draws` is their weights."""
        fits = [np.concatenate(self.fit(weights, start=fitted)) for weights in draws]
        tail = (1 - confidence) / 2
        ends = np.quantile(fits, [tail, 1 - tail], axis=0)
        low, high = (Fit(end[: self.n_players], end[self.n_players :]) for end in ends)
        return Intervals(low, high)


def drawn_matches(counts: npt.ArrayLike, resamples: int, rng: np.random.Generator) -> Iterable[Floats]:
    """Yield weights of matches drawn again one by one; `counts` says how often each was played."""
    played = np.asarray(counts, dtype=np.int64)
    for _ in range(resamples):
        yield rng.multinomial(played.sum(), played / played.sum()).astype(np.float64)


def drawn_clusters(cluster: npt.ArrayLike, resamples: int, rng: np.random.Generator) -> Iterable[Floats]:
    """Yield weights of matches drawn again by whole clusters: `cluster`, of shape (matches,), numbers them from 0.

    The matches on one prompt share responses, so they are not independent (Davison and Hinkley, 1997, section 3.8).
    """
    of = np.asarray(cluster, dtype=np.int64)
    clusters = int(of.max()) + 1
    for _ in range(resamples):
        yield rng.multinomial(clusters, np.full(clusters, 1 / clusters))[of].astype(np.float64)

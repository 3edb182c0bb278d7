"""Bradley-Terry as a logistic regression on weighted matches: utilities of a few players, and effects of covariates.

`evorun.ratings.bradley_terry` fits thousands of items to duels. Here each match has a weight, for bootstrap resampling,
and may have covariates. If one of them is the difference in log length of the responses, the utilities are those at
equal length. Length-controlled win rates do the same (Dubois et al., 2024).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PRIOR_SD = 10.0
"""Standard deviation of the normal prior of utilities and effects, in logits (ours).

It keeps the utility of a player that won every match finite. A few dozen matches with both outcomes outweigh it a
thousandfold."""

TOLERANCE = 1e-11
"""A fit stops at this norm of the gradient, relative to the number of matches (ours)."""
MAX_STEPS = 200
"""Maximum number of Newton steps (ours); about ten are usual."""


class Fit(NamedTuple):
    """Utilities and effects in logits."""

    utilities: Floats
    """Of shape (players,); their sum is 0."""
    effects: Floats
    """Of shape (covariates,): the change in the first player's utility per unit of each covariate."""


class Intervals(NamedTuple):
    """Bounds of 95 % intervals."""

    low: Fit
    high: Fit


class PairedLogit:
    """Model of matches: the first player wins with probability sigma(u_first - u_second + covariates . effects).

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

        covariates: of shape (matches, covariates). Without covariates, matches are counted by pair, so that the cost of
        a fit does not grow with their number.
        """
        self.n_players = n_players
        self._score = np.asarray(score, dtype=np.float64)
        left, right = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
        if covariates is None:
            pairs, self._row = np.unique(left * n_players + right, return_inverse=True)
            self._left, self._right = np.divmod(pairs, max(n_players, 1))
            self._covariates = np.zeros((len(pairs), 0))
        else:
            self._row, self._left, self._right = np.arange(len(left)), left, right
            self._covariates = np.asarray(covariates, dtype=np.float64)
        self._precision = 1 / prior_sd**2

    def fit(self, weights: npt.ArrayLike | None = None, *, start: Fit | None = None) -> Fit:
        """Return the mode of the posterior, by Newton's method. weights: of shape (matches,), 1 each by default."""
        given = np.ones(len(self._score)) if weights is None else np.asarray(weights, dtype=np.float64)
        played, won = (
            np.bincount(self._row, values, len(self._left)).astype(np.float64)
            for values in (given, given * self._score)
        )
        found = np.zeros(self.n_players + self._covariates.shape[1])
        if start is not None:
            found = np.concatenate([start.utilities, start.effects])
        gradient, hessian = self._derivatives(found, played, won)
        for _ in range(MAX_STEPS):
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
        # Matches determine only differences of utilities.
        return Fit(utilities - (utilities.mean() if len(utilities) else 0), found[self.n_players :])

    def _derivatives(self, at: Floats, played: Floats, won: Floats) -> tuple[Floats, Floats]:
        """Return the gradient and the Hessian of the negative log posterior."""
        n, left, right, x = self.n_players, self._left, self._right, self._covariates
        chance = expit(at[left] - at[right] + x @ at[n:])
        surprise, curvature = played * chance - won, played * chance * (1 - chance)
        gradient = np.concatenate([np.bincount(left, surprise, n) - np.bincount(right, surprise, n), x.T @ surprise])
        hessian = np.zeros((len(at), len(at)))
        met = np.bincount(left * n + right, curvature, n * n).reshape(n, n)
        met = met + met.T
        hessian[:n, :n] = np.diag(met.sum(axis=1)) - met
        for column, values in enumerate(x.T, start=n):
            pull = curvature * values
            hessian[column, :n] = np.bincount(left, pull, n) - np.bincount(right, pull, n)
        hessian[:n, n:] = hessian[n:, :n].T
        hessian[n:, n:] = x.T @ (curvature[:, None] * x)
        hessian[np.diag_indices(len(at))] += self._precision
        return gradient + self._precision * at, hessian

    def intervals(self, fitted: Fit, draws: Iterable[npt.ArrayLike]) -> Intervals:
        """Return 95 % percentile intervals over fits to resampled matches. draws: the weights of each resample."""
        fits = [np.concatenate(self.fit(weights, start=fitted)) for weights in draws]
        tail = (1 - 0.95) / 2
        ends = np.quantile(fits, [tail, 1 - tail], axis=0)
        low, high = (Fit(end[: self.n_players], end[self.n_players :]) for end in ends)
        return Intervals(low, high)


def resample_matches(counts: npt.ArrayLike, resamples: int, rng: np.random.Generator) -> Iterable[Floats]:
    """Yield the weights of each bootstrap resample of single matches; `counts` is how often each match was played."""
    played = np.asarray(counts, dtype=np.int64)
    for _ in range(resamples):
        yield rng.multinomial(played.sum(), played / played.sum()).astype(np.float64)


def resample_clusters(cluster: npt.ArrayLike, resamples: int, rng: np.random.Generator) -> Iterable[Floats]:
    """Yield the weights of each bootstrap resample of whole clusters of matches.

    `cluster`, of shape (matches,), gives each match's cluster, numbered from 0. The matches on one prompt share
    responses, so they are not independent (Davison and Hinkley, 1997, section 3.8).
    """
    cluster_of_match = np.asarray(cluster, dtype=np.int64)
    clusters = int(cluster_of_match.max()) + 1
    for _ in range(resamples):
        yield rng.multinomial(clusters, np.full(clusters, 1 / clusters))[cluster_of_match].astype(np.float64)

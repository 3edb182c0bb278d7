"""Bradley-Terry utilities of items from the outcomes of their duels, with uncertainty.

In Duel-Evolve (section 2.2, Equation 2), item i beats item j with probability sigma(mean_i - mean_j). Under independent
N(0, prior_sd^2) priors the posterior has one mode, the MAP estimate (section 2.3.1, Equation 4). A Laplace
approximation around it, with a diagonal Hessian, gives each item a Gaussian summary.
"""

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

Solver = Literal["newton", "lbfgs"]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# A fit may stop at this distance from the MAP, a Euclidean norm in prior standard deviations.
TOLERANCE = 1e-9
# The hardest cold start tried took 31 iterations (one item that won 10,000 duels against another, prior_sd 1e5).
MAX_ITERATIONS = 200


class Posterior(NamedTuple):
    """Gaussian summaries of the items' utilities.

    `mean` and `sd` have shape (n_items,) and are in logits: a difference of 1 is a win probability of 0.73.
    `iterations` counts the solver's steps.
    """

    mean: Floats
    sd: Floats
    iterations: int


def win_probability(mean_i: npt.ArrayLike, mean_j: npt.ArrayLike) -> Floats:
    """Return the probability that utility `mean_i` beats `mean_j` (Duel-Evolve, Equation 2); broadcasts."""
    return np.asarray(expit(np.subtract(mean_i, mean_j)), dtype=np.float64)


def fit(
    n_items: int,
    winners: npt.ArrayLike,
    losers: npt.ArrayLike,
    *,
    scores: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior_sd: float = 1.0,
    init: npt.ArrayLike | None = None,
    solver: Solver = "newton",
) -> Posterior:
    """Fit the posterior of `n_items` utilities to duels: in duel k, `winners[k]` beat `losers[k]`.

    The mean is the MAP of Equation 4 of Duel-Evolve. The standard deviation is
    sd_i = 1 / sqrt(1 / prior_sd^2 + sum of p (1 - p) over the duels of i). Items without duels keep the prior. Repeated
    and contradictory duels are welcome. Leave undecided duels out, or score them 0.5: half a win each.

    Both solvers find the same mode. "newton" is fast and within 1e-9 prior_sd of it. "lbfgs" is the paper's choice. It
    is within 1e-6 for a prior_sd near 1, and less exact for wider priors: rounding blurs the losses that its line
    search compares.

    `winners` and `losers` are integers of shape (duels,), indices of items. `scores`, of the same shape, are the
    winners' shares of a win, in [0, 1]; the losers get the rest. Without `scores`, winners take all. `weights`, of the
    same shape and >= 0, say for how many duels each counts; without them, for one. `init` of shape (m,), m <= n_items,
    starts the search, for example from an earlier fit; the remaining items start at 0. It changes the time that a fit
    takes, not its result. Newton's method calls no multi-threaded BLAS: many processes can fit at once, whatever
    OMP_NUM_THREADS.

    Raises ValueError for arrays of other shapes or types and for indices, scores or weights out of range. It also
    rejects an item that duels itself, and a prior_sd that is not positive and finite.
    """
    if not 0 < prior_sd < np.inf:
        raise ValueError(f"prior_sd: expected a positive finite number, got {prior_sd}")
    if solver not in ("newton", "lbfgs"):
        raise ValueError(f"solver: expected 'newton' or 'lbfgs', got '{solver}'")
    start = _start(n_items, init)
    won, lost = _indices("winners", winners, n_items), _indices("losers", losers, n_items)
    if won.size != lost.size:
        raise ValueError(f"winners and losers: expected equal lengths, got {won.size} and {lost.size}")
    if (won == lost).any():
        raise ValueError(f"winners and losers: expected two items in each duel, got item {won[won == lost][0]} twice")
    posterior = _LogPosterior(n_items, won, lost, _shares(scores, won.size), _counts(weights, won.size), prior_sd)
    # Far from the mode the curvature vanishes and Newton's method needs hundreds of steps; from zeros it needs tens.
    if start.any() and posterior.loss(start) > posterior.n_duels * np.log(2):  # the loss at zeros
        start = np.zeros(n_items)
    mode, iterations = (_newton if solver == "newton" else _lbfgs)(posterior, start)
    return Posterior(mode.utilities, 1 / np.sqrt(mode.diagonal), iterations)


def _start(n_items: int, init: npt.ArrayLike | None) -> Floats:
    """Return the initial utilities, of shape (n_items,): `init`, then zeros."""
    if n_items < 0:
        raise ValueError(f"n_items: expected a number >= 0, got {n_items}")
    utilities = np.zeros(n_items)
    if init is not None:
        known = np.asarray(init, dtype=np.float64)
        if known.ndim != 1 or known.size > n_items:
            raise ValueError(f"init: expected shape (m,) with m <= {n_items} items, got {known.shape}")
        if not np.isfinite(known).all():
            raise ValueError("init: expected finite utilities, got NaN or infinity")
        utilities[: known.size] = known
    return utilities


def _indices(name: str, values: npt.ArrayLike, n_items: int) -> Indices:
    indices = np.asarray(values)
    # an empty list has numpy's default type, float
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected integers of shape (duels,), got {indices.dtype} of shape {indices.shape}")
    if indices.size and (indices.min() < 0 or indices.max() >= n_items):
        raise ValueError(f"{name}: expected indices in 0..{n_items - 1}, got {indices.min()}..{indices.max()}")
    return indices.astype(np.int64)


def _shares(scores: npt.ArrayLike | None, n_duels: int) -> Floats | None:
    if scores is None:
        return None
    shares = np.asarray(scores, dtype=np.float64)
    if shares.shape != (n_duels,):
        raise ValueError(f"scores: expected shape ({n_duels},), one per duel, got {shares.shape}")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("scores: expected shares of a win in [0, 1]")
    return shares


def _counts(weights: npt.ArrayLike | None, n_duels: int) -> Floats:
    counts = np.ones(n_duels) if weights is None else np.asarray(weights, dtype=np.float64)
    if counts.shape != (n_duels,):
        raise ValueError(f"weights: expected shape ({n_duels},), one per duel, got {counts.shape}")
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("weights: expected finite numbers >= 0")
    return counts


class _Point(NamedTuple):
    """Derivatives of the negative log posterior at some utilities.

    The Hessian has `diagonal` on its diagonal, and -`coupling[k]` in the two entries of pair k.
    """

    utilities: Floats
    gradient: Floats
    gradient_norm: float
    diagonal: Floats
    coupling: Floats


class _LogPosterior:
    """Equation 4 of Duel-Evolve over duels counted by pair: the cost grows with pairs, not with duels."""

    def __init__(
        self,
        n_items: int,
        winners: Indices,
        losers: Indices,
        scores: Floats | None,
        weights: Floats,
        prior_sd: float,
    ) -> None:
        self.n_items, self.prior_sd, self.n_duels = n_items, prior_sd, float(weights.sum())
        # One integer per pair, whichever item won: numpy counts integers faster than rows.
        keys = np.minimum(winners, losers) * n_items + np.maximum(winners, losers)
        pairs, pair_of_duel = np.unique(keys, return_inverse=True)
        self.low, self.high = np.divmod(pairs, max(n_items, 1))
        self.duels = np.bincount(pair_of_duel, weights=weights, minlength=pairs.size)
        low_won = winners < losers
        low_share = low_won if scores is None else np.where(low_won, scores, 1 - scores)
        self.low_wins = np.bincount(pair_of_duel, weights=weights * low_share, minlength=pairs.size)

    def loss(self, utilities: Floats) -> float:
        """Return the negative log posterior, up to a constant."""
        logits = utilities[self.low] - utilities[self.high]
        softplus = np.maximum(logits, 0) + np.log1p(np.exp(-np.abs(logits)))  # a seventh of the time of np.logaddexp
        log_likelihood = np.sum(self.low_wins * logits - self.duels * softplus)
        return float(np.sum(utilities**2) / (2 * self.prior_sd**2) - log_likelihood)

    def at(self, utilities: Floats) -> _Point:
        """Return the derivatives of `loss`."""
        p = win_probability(utilities[self.low], utilities[self.high])
        expected = self.duels * p
        surprise, coupling = self.low_wins - expected, expected * (1 - p)
        pull = np.bincount(self.low, surprise, self.n_items) - np.bincount(self.high, surprise, self.n_items)
        information = np.bincount(self.low, coupling, self.n_items) + np.bincount(self.high, coupling, self.n_items)
        precision = np.float64(1 / self.prior_sd**2)
        gradient = precision * utilities - pull
        return _Point(utilities, gradient, float(np.linalg.norm(gradient)), precision + information, coupling)

    @cached_property
    def _hessian(self) -> tuple[csr_array, Indices]:
        """The matrix that all steps fill, and the positions of its entries in [diagonal, coupling, coupling]."""
        items = np.arange(self.n_items)
        rows, columns = np.concatenate([items, self.low, self.high]), np.concatenate([items, self.high, self.low])
        order = np.argsort(rows * self.n_items + columns)  # no two are equal
        ends = np.cumsum(np.bincount(rows, minlength=self.n_items))
        shape = (self.n_items, self.n_items)
        return csr_array((np.zeros(rows.size), columns[order], np.append(0, ends)), shape=shape), order

    def hessian(self, point: _Point) -> csr_array:
        """Return the Hessian of `loss`, of shape (n_items, n_items). The next call overwrites it."""
        matrix, order = self._hessian
        matrix.data = np.concatenate([point.diagonal, -point.coupling, -point.coupling])[order]
        return matrix

    def gradient_tolerance(self) -> float:
        """Return the norm of the gradient at which utilities are within TOLERANCE of the MAP."""
        # The Hessian is at least 1 / prior_sd^2, so the gradient's norm times prior_sd bounds the distance to the MAP
        # in prior standard deviations. The second term bounds the rounding error of a gradient that sums all duels.
        return float(TOLERANCE / self.prior_sd + 16 * np.finfo(np.float64).eps * self.n_duels)


def _newton(posterior: _LogPosterior, start: Floats) -> tuple[_Point, int]:
    """Minimise by Newton's method on the sparse Hessian, with step halving on the norm of the gradient.

    Each step must reduce the norm, not the loss: near the mode the loss no longer changes in floating point. The loss
    is strictly convex, so the norm has no other local minimum. Inexact steps keep the guarantee (Eisenstat and Walker,
    Globally Convergent Inexact Newton Methods, 1994).
    """
    point, tolerance = posterior.at(start), posterior.gradient_tolerance()
    for iteration in range(MAX_ITERATIONS):
        norm, diagonal = point.gradient_norm, point.diagonal
        if norm <= tolerance:
            return point, iteration
        # Conjugate gradients over the pairs that met, instead of a dense Cholesky factorisation: as fast at 200 items,
        # faster above. They need no BLAS, whose threads stall on small matrices when processes share cores. The closer
        # the mode, the more exact the step: convergence stays quadratic.
        residual = max(0.01 * norm * min(1.0, norm), 0.1 * tolerance)
        matrix = posterior.hessian(point)
        hessian = LinearOperator(matrix.shape, matvec=matrix.__matmul__, dtype=np.float64)  # half a matrix's time
        jacobi = LinearOperator(matrix.shape, matvec=lambda v, d=diagonal: v / d, dtype=np.float64)
        step, _ = cg(hessian, point.gradient, rtol=0.0, atol=residual, M=jacobi)
        # Halve the step until the gradient shrinks by at least a fraction of the decrease of a linear gradient.
        size = 1.0
        while (candidate := posterior.at(point.utilities - size * step)).gradient_norm > (1 - 1e-4 * size) * norm:
            size /= 2
        point = candidate
    raise RuntimeError(f"Bradley-Terry fit: no convergence in {MAX_ITERATIONS} iterations; use a smaller prior_sd")


def _lbfgs(posterior: _LogPosterior, start: Floats) -> tuple[_Point, int]:
    """Minimise by L-BFGS (Liu and Nocedal, 1989), as in section 2.3.1 of Duel-Evolve."""
    from scipy.optimize import minimize  # a sixth of a second to import, for a solver that few runs choose

    # scipy bounds the gradient's largest entry; evorun bounds its norm.
    largest_entry = posterior.gradient_tolerance() / np.sqrt(max(start.size, 1))
    result = minimize(
        posterior.loss,
        start,
        jac=lambda utilities: posterior.at(utilities).gradient,
        method="L-BFGS-B",
        options={"gtol": float(largest_entry), "ftol": 0.0, "maxiter": 100_000, "maxfun": 1_000_000},
    )
    return posterior.at(result.x), int(result.nit)

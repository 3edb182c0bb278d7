"""Time of one Bradley-Terry fit beside other solvers: every generation of every problem of a duelling method pays it.

200 candidates and 10,000 duels are many duels for each, as best-of-N has them; 1,800 candidates and 20,000 duels stand
for Duel-Evolve near its end.
"""

import choix
import evalica
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from evorun.ratings import bradley_terry
from evorun_bench import Row, best_ms

Duels = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


TINY = {"items": 10, "duels": 100, "repeats": 1}


def measure(items: int = 200, duels: int = 10_000, repeats: int = 50) -> list[Row]:
    """Measure fits from nothing, the fit that follows one of the first 95 % of the duels, and one at paper size."""
    fought, much = simulate_duels(items, duels), simulate_duels(9 * items, 2 * duels)
    known = duels * 95 // 100
    earlier = bradley_terry.fit(items, fought[0][:known], fought[1][:known])
    newton = best_ms(repeats, lambda: bradley_terry.fit(items, *fought))
    warm = best_ms(repeats, lambda: bradley_terry.fit(items, *fought, init=earlier.mean))
    lbfgs = best_ms(repeats, lambda: bradley_terry.fit(items, *fought, solver="lbfgs"))
    plain = best_ms(repeats, lambda: plain_lbfgs(items, fought))
    by_choix = best_ms(min(repeats, 2), lambda: choix.opt_pairwise(items, list(zip(*fought, strict=True)), alpha=0.5))
    by_evalica = best_ms(repeats, lambda: evalica.bradley_terry(*fought, [evalica.Winner.X] * duels))
    large = best_ms(repeats, lambda: bradley_terry.fit(9 * items, *much))
    of = f"{items:,} items, {duels:,} duels"
    return [
        Row(f"{of}: newton", newton, "ms", f"<= {by_evalica:.3g} (evalica)", newton <= by_evalica),
        Row(f"... newton, from the fit to the first {known:,}", warm, "ms", f"<= {newton:.3g} (cold)", warm <= newton),
        Row("... choix.opt_pairwise, times newton", by_choix / newton, "x", ">= 100", by_choix >= 100 * newton),
        Row("... choix.opt_pairwise", by_choix, "ms", "", None),
        Row("... evalica.bradley_terry (no prior)", by_evalica, "ms", "", None),
        Row("... lbfgs", lbfgs, "ms", "", None),
        Row("... scipy L-BFGS-B, duels not counted by pair", plain, "ms", "", None),
        Row(f"{9 * items:,} items, {2 * duels:,} duels: newton", large, "ms", "", None),
    ]


def simulate_duels(n_items: int, n_duels: int) -> Duels:
    """Duels of random pairs, decided by standard normal utilities."""
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=n_items)
    first = rng.integers(n_items, size=n_duels)
    second = (first + rng.integers(1, n_items, size=n_duels)) % n_items
    first_wins = rng.random(n_duels) < bradley_terry.win_probability(utilities[first], utilities[second])
    return np.where(first_wins, first, second), np.where(first_wins, second, first)


def plain_lbfgs(n_items: int, duels: Duels) -> None:
    """Find the MAP under a standard normal prior in the most obvious way."""
    winners, losers = duels

    def loss(utilities: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        margin = utilities[winners] - utilities[losers]
        surprise = bradley_terry.win_probability(0, margin)
        gradient = utilities - np.bincount(winners, surprise, n_items) + np.bincount(losers, surprise, n_items)
        return np.sum(np.logaddexp(0, -margin)) + np.sum(utilities**2) / 2, gradient

    minimize(loss, np.zeros(n_items), jac=True, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-8})

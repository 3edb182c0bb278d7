"""Time of one Bradley-Terry fit beside other solvers: every generation of every problem of a duelling method pays it.

The problem is that of Duel-Evolve near its end: 200 candidates, 10,000 duels. Set OMP_NUM_THREADS=1, as
`make bench` does.
"""

import time
from collections.abc import Callable

import choix
import evalica
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from evorun.ratings import bradley_terry
from evorun_bench import Row

Duels = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def measure() -> list[Row]:
    n_items, duels, large = 200, simulate_duels(200, 10_000), simulate_duels(1_800, 20_000)
    earlier = bradley_terry.fit(n_items, duels[0][:9_500], duels[1][:9_500])
    newton = best_ms(lambda: bradley_terry.fit(n_items, *duels))
    warm = best_ms(lambda: bradley_terry.fit(n_items, *duels, init=earlier.mean))
    lbfgs = best_ms(lambda: bradley_terry.fit(n_items, *duels, solver="lbfgs"))
    plain = best_ms(lambda: plain_lbfgs(n_items, duels))
    by_choix = best_ms(lambda: choix.opt_pairwise(n_items, list(zip(*duels, strict=True)), alpha=0.5), repeats=2)
    by_evalica = best_ms(lambda: evalica.bradley_terry(*duels, [evalica.Winner.X] * duels[0].size))
    return [
        Row("200 items, 10,000 duels: newton", newton, "ms", f"<= {by_evalica:.3g} (evalica)", newton <= by_evalica),
        Row("... newton, from the fit to the first 9,500 duels", warm, "ms", f"<= {newton:.3g} (cold)", warm <= newton),
        Row("... choix.opt_pairwise, times newton", by_choix / newton, "x", ">= 100", by_choix >= 100 * newton),
        Row("... choix.opt_pairwise", by_choix, "ms", "", None),
        Row("... evalica.bradley_terry (no prior)", by_evalica, "ms", "", None),
        Row("... lbfgs", lbfgs, "ms", "", None),
        Row("... scipy L-BFGS-B, duels not counted by pair", plain, "ms", "", None),
        Row("1,800 items, 20,000 duels: newton", best_ms(lambda: bradley_terry.fit(1_800, *large)), "ms", "", None),
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


def best_ms(call: Callable[[], object], repeats: int = 50) -> float:
    """Return the shortest time of `repeats` calls, in milliseconds: the one that other processes disturbed least."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return 1e3 * min(seconds)

"""Choices of islands, parents and models: pure functions and running sums, each with its source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]
EXPLOITED_SHARE = 0.7
"""Of the draws that do not explore, those among the fittest quarter; the others go by fitness (AdaEvolve's code)."""
_MIN_WEIGHT = 0.001


def shinka_weights(fitness: Sequence[float], children: Sequence[int], pressure: float) -> Weights:
    """Return parents' probabilities: sigmoid(pressure (f - median) / MAD) / (1 + children), normalised (Shinka)."""
    values = np.asarray(fitness, dtype=np.float64)
    median = np.median(values)
    spread = max(float(np.median(np.abs(values - median))), 1e-6)
    scaled = np.clip(pressure * (values - median) / spread, -500, 500)
    weights = 1 / (1 + np.exp(-scaled)) / (1 + np.asarray(children))
    return np.asarray(weights / weights.sum())


def fitness_weights(fitness: Sequence[float]) -> Weights:
    """Return probabilities proportional to fitness, with a small weight for those of none."""
    weights = np.maximum(np.asarray(fitness, dtype=np.float64), _MIN_WEIGHT)
    return np.asarray(weights / weights.sum())


def intensity_weights(fitness: Sequence[float], intensity: float) -> Weights:
    """Return AdaEvolve's probabilities of parents, given fittest first.

    With probability `intensity` any of them, else one of the fittest quarter, or by fitness.
    """
    count = len(fitness)
    top = np.zeros(count)
    top[: max(1, count // 4)] = 1 / max(1, count // 4)
    rest = EXPLOITED_SHARE * top + (1 - EXPLOITED_SHARE) * fitness_weights(fitness)
    return np.asarray(intensity / count + (1 - intensity) * rest)


@dataclass
class Progress:
    """An island's improvements, from which AdaEvolve takes its intensity and its turn."""

    decay: float
    best: float = -math.inf
    signal: float = 0.0
    """G: decayed mean of squared relative gains, at each gain."""
    visits: int = 0
    decayed_visits: float = 0.0
    decayed_gains: float = 0.0
    gains: int = 0

    def intensity(self, low: float, high: float) -> float:
        """Return the share of parents that are drawn to explore: low where the island improves."""
        return low + (high - low) / (1 + math.sqrt(self.signal))

    def receive(self, fitness: float) -> bool:
        """Take a member's fitness into account, also that of a migrant; return whether it is the best so far."""
        if fitness <= self.best:
            return False
        gain = _relative(fitness - self.best, self.best)
        self.signal = self.decay * self.signal + (1 - self.decay) * gain**2
        self.best = fitness
        return True

    def visit(self, fitness: float, overall_best: float) -> None:
        """Count a new child of the island, whose gain is relative to the best of all islands."""
        gain = _relative(fitness - self.best, overall_best) if fitness > self.best else 0.0
        self.visits += 1
        self.decayed_visits = self.decay * self.decayed_visits + 1
        self.decayed_gains = self.decay * self.decayed_gains + gain
        self.gains += self.receive(fitness)


def _relative(gain: float, best: float) -> float:
    """Return a gain relative to a best value, at most 1."""
    return 1.0 if math.isinf(best) else min(1.0, gain / (abs(best) + 1e-8))


MIN_VISITS = 3
"""Visits of each island before the bound decides (AdaEvolve)."""
UCB_WEIGHT = 1.41


def choose_island(progress: Sequence[Progress], planned: Sequence[int], rng: np.random.Generator) -> int:
    """Return the island whose next child promises most (AdaEvolve's upper confidence bound).

    planned: children that are planned for each island and not made yet, which count as visits without gain (ours: the
    paper makes one child at a time).
    """
    visits = [island.visits + waiting for island, waiting in zip(progress, planned, strict=True)]
    fresh = [number for number, count in enumerate(visits) if count < MIN_VISITS]
    if fresh:
        return fresh[int(rng.integers(len(fresh)))]
    log_total = math.log(sum(visits) + 1)
    bounds = [
        island.decayed_gains / (island.decayed_visits + waiting) + UCB_WEIGHT * math.sqrt(log_total / count)
        for island, waiting, count in zip(progress, planned, visits, strict=True)
    ]
    return int(np.argmax(bounds))


class ModelBandit:
    """Shinka's asymmetric bandit over models: only gains beyond the parent and the best so far are rewards."""

    def __init__(
        self, models: int, *, exploration: float, epsilon: float, decay: float, cost_weight: float = 0.0
    ) -> None:
        """cost_weight: of a model's cheapness, in place of so much of its reward."""
        self._exploration, self._epsilon, self._decay = exploration, epsilon, decay
        self._cost_weight = cost_weight
        self.calls = np.zeros(models)
        self._rewards = np.zeros(models)
        self._updates = np.zeros(models)
        self._largest = 0.0

    def probabilities(self, costs: Sequence[float]) -> Weights:
        """Return the probability of each model: untried ones first, else the leader's and epsilon for the others.

        costs: mean cost of a model's calls; the cheapest model has a cheapness of 1, one of twice its cost 0.5 (ours).
        """
        models = len(self.calls)
        if (untried := self.calls <= 0).any():
            return np.asarray(untried / untried.sum())
        means = self._rewards / np.maximum(self._updates, 1e-7) / (self._largest or 1.0)
        if self._cost_weight:
            cost = np.maximum(np.asarray(costs, dtype=np.float64), 1e-12)
            means = (1 - self._cost_weight) * means + self._cost_weight * cost.min() / cost
        total = max(float(self.calls.sum()), 2.0)
        bounds = means + self._exploration * np.sqrt(2 * math.log(total) / self.calls)
        leads = bounds == bounds.max()
        others = models - int(leads.sum())
        if not others:
            return np.full(models, 1 / models)
        return np.where(leads, (1 - self._epsilon) / leads.sum(), self._epsilon / others)

    def submit(self, model: int) -> None:
        """Count a call to a model, whose outcome is not known yet."""
        self.calls[model] += 1

    def update(self, model: int, fitness: float, baseline: float) -> None:
        """Reward a model's child by expm1(gain), with a gain as a share of 100 points beyond the baseline."""
        reward = math.expm1(max(0.0, fitness - baseline) / 100)
        self._updates[model] += 1
        self._rewards[model] += reward
        self._largest = max(self._largest, reward)
        # Both sums forget alike, so that means stay and old evidence weighs less; the count of calls does not forget.
        self._rewards *= self._decay
        self._updates *= self._decay

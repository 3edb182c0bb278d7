"""Beliefs about the mean score of an arm, from which Thompson sampling draws (AB-MCTS, arXiv 2503.04412)."""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np


class Belief(Protocol):
    """A posterior distribution of a mean score."""

    def add(self, score: float) -> None:
        """Observe a score in [0, 1]."""
        ...

    def draw(self, rng: np.random.Generator) -> float:
        """Return a draw of the mean."""
        ...


@dataclass(frozen=True)
class GaussianPrior:
    """A normal-inverse-chi-square prior of a normal distribution's mean and variance."""

    mean: float = 0.0
    """m."""
    mean_weight: float = 1.0
    """kappa: number of scores that the mean stands for."""
    variance: float = 0.1
    """tau^2."""
    variance_weight: float = 1.0
    """nu: number of scores that the variance stands for."""


class Gaussian:
    """Normal scores with unknown mean and variance; the posterior of the mean is a Student's t distribution."""

    def __init__(self, prior: GaussianPrior) -> None:
        self._prior = prior
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        """Sum of squared deviations from the mean."""

    def add(self, score: float) -> None:
        self._count += 1
        change = score - self._mean
        self._mean += change / self._count
        self._squares += change * (score - self._mean)

    @property
    def posterior(self) -> GaussianPrior:
        """The prior, updated by all scores so far."""
        prior, count = self._prior, self._count
        mean_weight, variance_weight = prior.mean_weight + count, prior.variance_weight + count
        between = count * prior.mean_weight / mean_weight * (prior.mean - self._mean) ** 2
        return GaussianPrior(
            mean=(prior.mean_weight * prior.mean + count * self._mean) / mean_weight,
            mean_weight=mean_weight,
            variance=(prior.variance_weight * prior.variance + self._squares + between) / variance_weight,
            variance_weight=variance_weight,
        )

    def draw(self, rng: np.random.Generator) -> float:
        now = self.posterior
        # A scaled inverse chi-square draw is the scale over a gamma draw.
        variance = now.variance_weight * now.variance / 2 / rng.gamma(now.variance_weight / 2)
        return float(rng.normal(now.mean, sqrt(variance / now.mean_weight)))


class Beta:
    """Scores as shares of successes."""

    def __init__(self, prior: float) -> None:
        """prior: a = b; 0.5 is Jeffreys' prior."""
        self.successes = self.failures = prior

    def add(self, score: float) -> None:
        self.successes += score
        self.failures += 1 - score

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.beta(self.successes, self.failures))

"""The value head of PPO's critic, and PopArt: its outputs keep one scale while the scale of returns changes.

PopArt is from van Hasselt et al., "Learning values across many orders of magnitude" (2016).

Imports torch: only the trainer process imports this module.
"""

import math
from typing import Any

import numpy as np
import torch

from evorun.training.advantages import Floats

SMALLEST_SCALE, LARGEST_SCALE = 1e-4, 1e6
"""Bounds on the standard deviation that returns are divided by (Hessel et al. 2019, "Multi-task deep reinforcement
learning with PopArt")."""


class ValueHead(torch.nn.Linear):
    """A linear function of hidden states: the value, or with PopArt its distance from the mean return in deviations."""

    mean: torch.Tensor
    """Running mean of returns."""
    mean_square: torch.Tensor
    """Running mean of their squares."""
    batches: torch.Tensor
    """Number of batches in both."""

    def __init__(self, width: int, popart: float | None) -> None:
        """popart: weight of a new batch in the running means; None: no PopArt."""
        # Without PopArt no bias, as the heads of transformers' models.
        super().__init__(width, 1, bias=popart is not None)
        self._popart = popart
        for name in ("mean", "mean_square", "batches"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.reset()

    @property
    def scale(self) -> float:
        """Standard deviation of returns, within bounds; 1 before the first batch."""
        if not self.batches:
            return 1.0
        deviation = math.sqrt(max(float(self.mean_square - self.mean.square()), 0.0))
        return min(max(deviation, SMALLEST_SCALE), LARGEST_SCALE)

    @torch.no_grad()
    def reset(self) -> None:
        """Set the output to 0 everywhere, and forget all returns."""
        # At 0 the first advantages are the rewards to come.
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.zero_()

    @torch.no_grad()
    def adapt(self, returns: Floats) -> None:
        """Take a batch's returns into the means; change weight and bias so that no state's value changes by it.

        Equations 4 to 6 of the paper, a batch being one step: the means are exponential, and the weights of the first
        batches are corrected for their start at 0. Does nothing without PopArt.
        """
        if self._popart is None:
            return
        old_mean, old_scale = float(self.mean), self.scale
        self.batches += 1
        weight = self._popart / (1 - (1 - self._popart) ** float(self.batches))
        # Not `mean += weight * (new - mean)`: what a far larger scale leaves of it by rounding would stay.
        for running, new in ((self.mean, returns.mean()), (self.mean_square, np.square(returns).mean())):
            running.mul_(1 - weight).add_(weight * new)
        ratio = old_scale / self.scale
        self.weight *= ratio
        self.bias.copy_(ratio * self.bias + (old_mean - float(self.mean)) / self.scale)

    def values(self, outputs: Any) -> Any:
        """Return the values that outputs stand for."""
        return outputs * self.scale + float(self.mean)

    def outputs(self, values: Any) -> Any:
        """Return the outputs that stand for values, or for returns."""
        return (values - float(self.mean)) / self.scale

"""The value head of PPO's critic, with PopArt, which keeps the scale of its outputs while that of returns changes.

PopArt is from van Hasselt et al., "Learning values across many orders of magnitude" (2016).

Imports torch: only the trainer process imports this module.
"""

import math
from typing import Any

import numpy as np
import torch

from evorun.training.advantages import Floats

SMALLEST_SCALE, LARGEST_SCALE = 1e-4, 1e6
"""Bounds on the standard deviation that divides returns (Hessel et al. 2019, "Multi-task deep reinforcement learning
with PopArt")."""


class ValueHead(torch.nn.Linear):
    """A linear function of hidden states: the value or, with PopArt, the value standardised by the returns so far."""

    mean: torch.Tensor
    """Running mean of returns."""
    mean_square: torch.Tensor
    """Running mean of squared returns."""
    batches: torch.Tensor
    """Number of batches in both means."""

    def __init__(self, width: int, popart: float | None) -> None:
        """popart: weight of a new batch in the running means; None: no PopArt."""
        # No bias without PopArt, as in the heads of transformers' models.
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
        # With values of 0, the first advantages are the future rewards.
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.zero_()

    @torch.no_grad()
    def adapt(self, returns: Floats) -> None:
        """Update the running means with a batch's returns, and adjust weight and bias so that no state's value changes.

        Equations 4 to 6 of the paper, with a batch as one step. The means are exponential, with a correction for their
        start at 0. Does nothing without PopArt.
        """
        if self._popart is None:
            return
        old_mean, old_scale = float(self.mean), self.scale
        self.batches += 1
        weight = self._popart / (1 - (1 - self._popart) ** float(self.batches))
        # Not `mean += weight * (new - mean)`, in which rounding errors of an earlier, far larger scale would persist.
        for running, new in ((self.mean, returns.mean()), (self.mean_square, np.square(returns).mean())):
            running.mul_(1 - weight).add_(weight * new)
        ratio = old_scale / self.scale
        self.weight *= ratio
        self.bias.copy_(ratio * self.bias + (old_mean - float(self.mean)) / self.scale)

    def values(self, outputs: Any) -> Any:
        """Return the values for outputs of the head."""
        return outputs * self.scale + float(self.mean)

    def outputs(self, values: Any) -> Any:
        """Return the outputs of the head for values or returns."""
        return (values - float(self.mean)) / self.scale

"""Measures the speed of an update: tokens, seconds, memory, and how much of the GPU's arithmetic it uses.

Imports torch: only the trainer process imports this module.
"""

import math
import resource
import time
from typing import Any

import torch
from accelerate.utils import gather_object

from evorun.models.memory import GIB
from evorun.training.batches import width
from evorun.training.sharding import full_shape
from evorun.training.wire import Speed, Train

PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
    "A10": 125e12,
    "L4": 121e12,
}
"""FLOP per second in bfloat16 without sparsity, by the vendors' data sheets; the first name that occurs counts."""


class Meter:
    """Measures one update after another."""

    def begin(self, trainer: Any, command: Train) -> None:
        """Begin an update."""
        self._trainer = trainer
        self._tokens = sum(map(width, command.rows)) * getattr(trainer, "epochs", 1)
        self._started = time.perf_counter()

    def read(self) -> Speed:
        """Return the speed of the update. All processes must call this together."""
        seconds = time.perf_counter() - self._started
        memory = max(gather_object([_peak_memory()]))
        # Fine-tuning alone knows its rows.
        tokens = self._tokens or int(getattr(self._trainer, "step_tokens", 0))
        return Speed(tokens=tokens, seconds=seconds, memory=memory / GIB, mfu=self._utilisation(tokens / seconds))

    def _utilisation(self, tokens_per_second: float) -> float | None:
        """Return the share of the GPUs' peak that the update used (Chowdhery et al. 2022, "PaLM", appendix B).

        What is computed again for `training.gradient_checkpointing` does not count; neither does attention.
        """
        accelerator = self._trainer.accelerator
        if accelerator.device.type != "cuda" or not self._trainer.args.bf16:
            return None
        peak = find_peak(torch.cuda.get_device_name())
        if peak is None:
            return None
        flops = flops_per_token(self._trainer.model)
        return tokens_per_second * flops / (peak * int(accelerator.num_processes))


def find_peak(gpu: str) -> float | None:
    """Return the FLOP per second of a kind of GPU; None where it is unknown."""
    return next((peak for name, peak in PEAKS.items() if name in gpu), None)


def flops_per_token(model: torch.nn.Module) -> int:
    """Return the floating-point operations of a forward and a backward pass.

    Two per weight in the forward pass, two for the gradients of its inputs, and two for its own where it is trained.
    """
    sizes = [(_size(parameter), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size * (6 if trained else 4) for size, trained in sizes)


def _size(parameter: torch.Tensor) -> int:
    """Return the number of a parameter's weights, packed or divided among processes as they may be."""
    packed = getattr(parameter, "quant_state", None)
    return math.prod(full_shape(parameter) if packed is None else packed.shape)


def _peak_memory() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

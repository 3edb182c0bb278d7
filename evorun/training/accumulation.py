"""Accumulates the gradient of an optimiser step over passes, each as large as memory allows.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, DistributedType

from evorun.training.ranks import RANK

P = TypeVar("P")


def accumulate(
    accelerator: Accelerator,
    model: Any,
    passes: Sequence[P],
    input_ids: Callable[[P], torch.Tensor],
    learn: Callable[[P], torch.Tensor],
) -> torch.Tensor:
    """Return the summed loss of some passes; processes synchronise their gradients after the last one.

    input_ids: gives the token ids of a pass, shape [rows, T]. learn: makes its forward and backward pass.
    """
    loss = torch.zeros((), device=accelerator.device)
    for index, own_pass in enumerate(passes):
        last = index + 1 == len(passes)
        rows, tokens = input_ids(own_pass).shape
        RANK.note(f"pass {index + 1} of {len(passes)}", rows=rows, tokens=rows * tokens)
        accelerator.gradient_state._set_sync_gradients(last)  # DeepSpeed makes its step when this is true
        waits = last or accelerator.distributed_type == DistributedType.DEEPSPEED
        with nullcontext() if waits else accelerator.no_sync(model):
            loss += learn(own_pass)
    return loss

"""Keeps a trainer's weights and optimiser in main memory while it waits, so that an engine can use its GPU.

Imports torch: only the trainer process imports this module.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary


class Offload:
    """The tensors of one of TRL's trainers, on its device or in main memory."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._device: torch.device = trainer.accelerator.device
        self._hosts: Any = WeakIdKeyDictionary()
        """The main memory of each tensor, allocated once: pinned memory is slow to allocate, and fast to copy."""
        self._away: list[torch.Tensor] = []

    def leave(self) -> None:
        """Move all tensors to main memory; idempotent."""
        if self._away:
            return
        tensors = list(self._tensors())
        for tensor in tensors:
            host = self._hosts.get(tensor)
            if host is None or host.shape != tensor.shape or host.dtype != tensor.dtype:
                host = torch.empty_like(tensor.data, device="cpu", pin_memory=self._device.type == "cuda")
                self._hosts[tensor] = host
            host.copy_(tensor.data, non_blocking=True)
        self._synchronise()
        for tensor in tensors:
            tensor.data = self._hosts[tensor]  # in place, so that whoever refers to the tensor sees the move
        self._away = tensors
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def come_back(self) -> None:
        """Move all tensors to the device; idempotent."""
        for tensor in self._away:
            tensor.data = tensor.data.to(self._device, non_blocking=True, copy=True)
        self._synchronise()
        self._away = []

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors on the device: those of all modules (policy, reference, critic), and the optimiser's."""
        found: dict[int, torch.Tensor] = {}
        holders = (self._trainer, getattr(self._trainer, "reference", None))
        for module in (value for holder in holders if holder is not None for value in vars(holder).values()):
            if isinstance(module, torch.nn.Module):
                found |= {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        found |= {id(tensor.grad): tensor.grad for tensor in list(found.values()) if tensor.grad is not None}
        optimizer = self._trainer.optimizer
        for state in () if optimizer is None else optimizer.state.values():
            found |= {id(value): value for value in state.values() if isinstance(value, torch.Tensor)}
        storages = Counter(tensor.untyped_storage().data_ptr() for tensor in found.values())
        for tensor in found.values():
            # Of tensors with one storage, each would get a copy of its own.
            if tensor.device == self._device and storages[tensor.untyped_storage().data_ptr()] == 1:
                yield tensor

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

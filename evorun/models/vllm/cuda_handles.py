"""Handles of a buffer in a GPU's memory, for another process on that GPU, without pickles.

torch describes a shared tensor by arguments that contain its classes (`torch.multiprocessing.reductions`). Of a buffer
of bytes all but these fields are known.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Handle(NamedTuple):
    """The identity of a buffer of bytes; the last fields count who uses it, and order reads behind writes."""

    device: int
    memory: bytes
    size: int
    offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    waits: bool


def shorten(arguments: Sequence[Any]) -> Handle:
    """Return the handle in the arguments of torch's `rebuild_cuda_tensor`, of a buffer of bytes."""
    device, memory, size, offset, _, *counted = arguments[6:]
    return Handle(device, memory, size, offset, *counted)


def expand(handle: Handle) -> tuple[Any, ...]:
    """Return the arguments of torch's `rebuild_cuda_tensor`."""
    import torch

    kind = (torch.Tensor, torch.Size([handle.size]), (1,), 0, torch.storage.TypedStorage, torch.uint8)
    return (*kind, *handle[:4], False, *handle[4:])

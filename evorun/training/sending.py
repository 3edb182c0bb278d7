"""Sends the policy's weights from the trainer's memory to a vLLM engine, by vLLM's own transfers.

- `ipc`: the trainer packs tensors into a buffer on its GPU, and vLLM's process on the same GPU copies them from there
  (CUDA IPC). With several GPUs, each of the trainer's processes does so for the engine's process on its GPU.
- `nccl`: the trainer's first process broadcasts to all of vLLM's processes, which are on other GPUs.

The run stands between the two: the trainer asks it for each step of the engine's (`EngineCall`).

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from evorun.models.vllm.cuda_handles import shorten
from evorun.training.sharding import full_shape, own_part
from evorun.training.tcp import find_free_port
from evorun.training.wire import Send

BUFFER = 2**29
"""Bytes of a buffer of packed tensors; one larger tensor gets a larger one. A second copy is in vLLM. `ours`."""


class Meta(NamedTuple):
    """A tensor to be sent, as vLLM's `ParamMeta`."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class PolicyWeights:
    """All weights of a model by their names in a checkpoint, whole and in one precision; a `WeightSource` of vLLM's.

    Layers come one after another, and only one is whole at a time. Each of several processes must iterate alike.
    """

    def __init__(self, model: Any, dtype: torch.dtype | None, device: torch.device) -> None:
        """dtype: of floating-point tensors; None: as they are. device: where they are sent from."""
        self._model = model
        self._dtype = dtype
        self._device = device

    def metadata(self) -> list[Meta]:
        """Return name, type and shape of each tensor, in the order in which they come."""
        found = []
        for group in self._groups():
            empty = {
                name: torch.empty(full_shape(tensor), dtype=self._sent_as(tensor), device="meta")
                for name, tensor in group.items()
            }
            found += [Meta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._rename(empty)]
        return found

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        with torch.no_grad():
            for group in self._groups():
                whole = {name: _make_whole(tensor) for name, tensor in group.items()}
                for name, tensor in self._rename(whole):
                    yield name, tensor.to(self._device, self._sent_as(tensor)).contiguous()

    def _groups(self) -> Iterator[dict[str, Any]]:
        """Yield parameters and buffers by layer: what one tensor of a checkpoint is made of lies in one layer."""
        names = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        tensors = dict(self._model.named_parameters())  # tied weights once
        tensors |= {name: buffer for name, buffer in self._model.state_dict().items() if name not in names}
        ignored = set(self._model._keys_to_ignore_on_save or ())
        layers: dict[str, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name not in ignored:
                layers.setdefault(_find_layer(name), {})[name] = tensor
        yield from layers.values()

    def _rename(self, tensors: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        return list(revert_weight_conversion(self._model, dict(tensors)).items())

    def _sent_as(self, tensor: torch.Tensor) -> torch.dtype:
        return self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype


def _find_layer(name: str) -> str:
    """Return a name up to its first number, `model.layers.3`; for others all but the last part."""
    parts = name.split(".")
    end = next((place + 1 for place, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[:end])


def _make_whole(tensor: Any) -> torch.Tensor:
    own = tensor.detach()
    values: torch.Tensor = own.full_tensor() if isinstance(own, DTensor) else own_part(tensor)
    return values


class EngineClient:
    """The engine as vLLM's senders see it (`VLLMWeightSyncClient`), which the run asks in their place."""

    def __init__(self, ask: Callable[[str, Mapping[str, Any]], None]) -> None:
        """ask: lets all of the engine's processes carry out one of their methods, and waits for its end."""
        self._ask = ask

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Let the engine meet this process."""
        self._ask("init_weight_transfer_engine", {"init_info": dict(init_info)})

    def start_weight_update(self) -> None:
        """Begin a transfer."""
        self._ask("start_weight_update", {})

    def update_weights(self, update_info: Mapping[str, Any]) -> None:
        """Let the engine read a buffer (ipc), or receive all tensors that this process broadcasts (nccl)."""
        update = {key: value for key, value in update_info.items() if value is not None}
        handles = update.pop("ipc_handles", None)
        if handles is None:
            self._ask("update_weights", {"update_info": update})
        else:
            shared = {gpu: shorten(arguments) for gpu, arguments in handles.items()}
            self._ask("update_weights_by_ipc", {"update": update, "handles": shared})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End a transfer."""
        self._ask("finish_weight_update", {})


class Sender:
    """Sends weights to an engine, which it meets once."""

    def __init__(self, rank: int, ask: Callable[[str, Mapping[str, Any]], None]) -> None:
        """rank: of this process; only the first asks the engine. ask: see `EngineClient`."""
        self._rank = rank
        self._client = EngineClient(ask)
        self._sender: Any = None
        self._met: int | None = None
        """The number of the engine's start."""

    def send(self, command: Send, weights: PolicyWeights) -> None:
        """Replace the engine's weights by these. All processes must call this together."""
        if self._met != command.engine:
            if self._sender is not None:
                self._sender.shutdown()
            self._sender = _meet(command, self._rank, self._client, weights)
            self._met = command.engine
        self._sender.source = weights
        try:
            self._sender.send_weights()
        finally:
            self._sender.source = None  # it holds the model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _meet(command: Send, rank: int, client: EngineClient, weights: PolicyWeights) -> Any:
    """Return vLLM's sender, after the engine has met it."""
    # vLLM takes seconds to import.
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo, IPCTrainerWeightTransferEngine
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine

    sizes = [torch.Size(meta.shape).numel() * meta.dtype.itemsize for meta in weights.metadata()]
    size = min(sum(sizes), max(BUFFER, *sizes))
    if command.transfer == "ipc":
        here = IPCTrainerInitInfo(rank=rank, packed=True, packed_buffer_size_bytes=size)
        return IPCTrainerWeightTransferEngine.trainer_init(here, client=client, source=weights)
    # The engine is on the run's node, as the trainer's first process.
    there = NCCLTrainerInitInfo(
        rank=rank,
        master_address="127.0.0.1",
        master_port=find_free_port() if rank == 0 else 0,
        world_size=1 + command.processes,
        packed=True,
        packed_buffer_size_bytes=size,
    )
    return NCCLTrainerWeightTransferEngine.trainer_init(there, client=client, source=weights)

"""vLLM's transfers of weights without a GPU: shared main memory in place of CUDA IPC's, and gloo in that of NCCL.

`sending_trainers` gives trainers' processes a sender with the interface of vLLM's; `read` is what a worker does with a
buffer. As a script, it is such a trainer: `shared_memory_transfer.py JOB.json`.
"""

import importlib
import mmap
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from evorun.training import process, sending, worker
from evorun.training.launching import WORKER
from evorun.training.wire import Job
from warm_process import forked_trainers, is_there

GPU = "GPU-main-memory"
BUFFER = 20_000
"""Bytes of a buffer: less than a tiny model has."""


@dataclass
class InitInfo:
    """The arguments of vLLM's `IPCTrainerInitInfo`."""

    rank: int
    packed: bool
    packed_buffer_size_bytes: int


class Sender:
    """In the place of vLLM's `IPCTrainerWeightTransferEngine`."""

    def __init__(self, client: Any, source: Any, size: int) -> None:
        self.client = client
        self.source = source
        self._size = size

    @classmethod
    def trainer_init(cls, init_info: InitInfo, *, client: Any, source: Any) -> "Sender":
        assert init_info.rank == 0
        client.init_weight_transfer_engine({"packed": init_info.packed})
        return cls(client, source, init_info.packed_buffer_size_bytes)

    def send_weights(self) -> None:
        self.client.start_weight_update()
        with tempfile.NamedTemporaryFile() as file:
            os.truncate(file.name, self._size)
            with mmap.mmap(file.fileno(), self._size) as buffer:
                for chunk in self._chunks():
                    buffer.seek(0)
                    for _, tensor in chunk:
                        buffer.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
                    update = {
                        "names": [name for name, _ in chunk],
                        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in chunk],
                        "shapes": [list(tensor.shape) for _, tensor in chunk],
                        "tensor_sizes": [tensor.nbytes for _, tensor in chunk],
                        "ipc_handles": {GPU: make_arguments(file.name.encode(), self._size)},
                        "ipc_handles_pickled": None,
                    }
                    self.client.update_weights(update)
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Hold nothing."""

    def _chunks(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        chunk: list[tuple[str, torch.Tensor]] = []
        for name, tensor in self.source:
            assert tensor.nbytes <= self._size
            if sum(held.nbytes for _, held in chunk) + tensor.nbytes > self._size:
                yield chunk
                chunk = []
            chunk.append((name, tensor))
        yield chunk


def make_arguments(memory: bytes, size: int) -> tuple[Any, ...]:
    """Return what torch's `rebuild_cuda_tensor` needs for a buffer of bytes on a GPU."""
    of_buffer = torch.Tensor, torch.Size([size]), (1,), 0, torch.storage.TypedStorage, torch.uint8
    return (*of_buffer, 0, memory, size, 512, False, b"counter", 3, b"event", True)


def read(update: Mapping[str, Any], arguments: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
    """Return copies of the tensors in a buffer. arguments: as `make_arguments` returns them."""
    sizes = update["tensor_sizes"]
    whole = torch.frombuffer(bytearray(Path(arguments[7].decode()).read_bytes()), dtype=torch.uint8)[: sum(sizes)]
    described = zip(update["names"], update["dtype_names"], update["shapes"], whole.split(sizes), strict=True)
    return [(name, part.clone().view(getattr(torch, dtype)).view(shape)) for name, dtype, shape, part in described]


def pretend() -> None:
    """Let this process find the sender where it looks for vLLM's, and give it small buffers."""
    sending.BUFFER = BUFFER
    package = "vllm.distributed.weight_transfer"
    if find_spec("vllm") is None:
        for name in ("vllm", "vllm.distributed", package, f"{package}.nccl_engine", f"{package}.ipc_engine"):
            sys.modules[name] = types.ModuleType(name)
        replaced = ["ipc", "nccl"]
    else:
        use_gloo()
        replaced = ["ipc"]
    for kind in replaced:
        module: Any = importlib.import_module(f"{package}.{kind}_engine")
        setattr(module, f"{kind.upper()}TrainerInitInfo", InitInfo)
        setattr(module, f"{kind.upper()}TrainerWeightTransferEngine", Sender)


class Group:
    """In the place of vLLM's `PyNcclCommunicator`: the same processes, joined by gloo."""

    def __init__(self, address: str, port: int, rank: int, size: int, device: Any) -> None:
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group as join

        self._group: Any = join(address, port, rank, size, "gloo")

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        options = torch.distributed.BroadcastOptions()
        options.rootRank = src
        self._group.broadcast([tensor], options).wait()

    def destroy(self) -> None:
        """Leave the group."""


def use_gloo() -> None:
    """Let vLLM's own transfer by NCCL, both ends of it, work without a GPU: gloo in its place, and no streams."""
    from vllm.distributed.weight_transfer import nccl_common, packed_tensor

    nccl_common.stateless_init_process_group = Group
    packed_tensor._get_streams = lambda device, count: (types.SimpleNamespace(synchronize=lambda: None),) * count
    patched: Any = torch
    patched.cuda.stream = nullcontext
    patched.accelerator.current_device_index = lambda: 0


@contextmanager
def sending_trainers() -> Iterator[None]:
    """Let the trainers of this process's runs send through main memory; they are forks where that is possible."""
    command_line = process.command_line

    def sending_command(job: Job, file: Path) -> list[str]:
        command = command_line(job, file)
        at = command.index(WORKER) - 1
        return [*command[:at], __file__, *command[at + 2 :]]

    forks = forked_trainers() if is_there() else nullcontext()
    with mock.patch.object(process, "command_line", sending_command), forks:
        yield


if __name__ == "__main__":
    pretend()
    sys.exit(worker.main(sys.argv[1]))

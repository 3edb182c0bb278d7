"""A worker of vLLM's CPU build that receives from main memory what others receive from their GPU's.

vLLM's process imports this module by the name of the extension.
"""

from typing import Any

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

from evorun.models.vllm.worker import CpuWorkerExtension, IpcWorkerExtension
from shared_memory_transfer import GPU, read

BACKEND = "main_memory"


class MainMemory(IPCWeightTransferEngine):  # type: ignore[misc] - vLLM may not be installed
    """vLLM's own, but for the place of the buffer."""

    def receive_weights(self, update_info: Any) -> None:
        update = {key: getattr(update_info, key) for key in ("names", "dtype_names", "shapes", "tensor_sizes")}
        self.model.load_weights(read(update, update_info.ipc_handles[GPU]))


class Extension(CpuWorkerExtension, IpcWorkerExtension):
    """What evorun adds to a worker of the CPU build, and to one that receives weights."""


WeightTransferEngineFactory.register_engine(BACKEND, MainMemory)

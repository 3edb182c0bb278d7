"""A worker of vLLM's CPU build that receives from main memory what others receive from their GPU's.

vLLM's process imports this module by the name of the extension.
"""

from typing import Any

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

from evorun.models.vllm.worker import CpuWorkerExtension, IpcWorkerExtension
from shared_memory_transfer import GPU, read, use_gloo

BACKEND = "main_memory"


class MainMemory(IPCWeightTransferEngine):  # type: ignore[misc] - vLLM may not be installed
    """vLLM's own, but for the place of the buffer; its transfer by NCCL for a trainer that names an address."""

    def parse_init_info(self, init_dict: dict[str, Any]) -> Any:
        by_nccl = "master_address" in init_dict
        self._nccl = NCCLWeightTransferEngine(*self._made_of) if by_nccl else None
        return self._nccl.parse_init_info(init_dict) if by_nccl else super().parse_init_info(init_dict)

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self._made_of = made_of
        self._nccl: Any = None

    def init_transfer_engine(self, init_info: Any) -> None:
        if self._nccl is None:
            super().init_transfer_engine(init_info)
        else:
            self._nccl.init_transfer_engine(init_info)

    def parse_update_info(self, update_dict: dict[str, Any]) -> Any:
        parse = super().parse_update_info if self._nccl is None else self._nccl.parse_update_info
        return parse(update_dict)

    def receive_weights(self, update_info: Any) -> None:
        if self._nccl is None:
            update = {key: getattr(update_info, key) for key in ("names", "dtype_names", "shapes", "tensor_sizes")}
            self.model.load_weights(read(update, update_info.ipc_handles[GPU]))
        else:
            self._nccl.receive_weights(update_info)


class Extension(CpuWorkerExtension, IpcWorkerExtension):
    """The parts that evorun adds to a worker of the CPU build, and to one that receives weights."""


use_gloo()
WeightTransferEngineFactory.register_engine(BACKEND, MainMemory)

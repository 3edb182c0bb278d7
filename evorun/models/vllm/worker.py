"""Methods that vLLM's workers have for evorun beside their own; vLLM's processes import this module."""

from collections.abc import Mapping, Sequence
from typing import Any

from evorun.models.vllm.cuda_handles import Handle, expand


class CpuWorkerExtension:
    """A part of every worker of vLLM's CPU build (`worker_extension_cls`)."""

    model_runner: Any

    def repack_output_layer(self) -> None:
        """Pack the output layer's weights once more after those of the model were replaced.

        The CPU build multiplies by packed copies of weights. Loading weights makes new copies of all but an output
        layer that is tied to the embedding, which loads none of its own (vLLM 0.32).
        """
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        for module in self.model_runner.get_model().modules():
            if isinstance(module, ParallelLMHead) and hasattr(module, "cpu_linear"):
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)


class IpcWorkerExtension:
    """A part of every worker that receives weights through memory of its own GPU."""

    update_weights: Any

    def update_weights_by_ipc(self, update: Mapping[str, Any], handles: Mapping[str, Sequence[Any]]) -> None:
        """Load a buffer of tensors. handles: of the buffer, by the id of the GPU.

        vLLM would unpickle them only with VLLM_ALLOW_INSECURE_SERIALIZATION=1.
        """
        expanded = {gpu: expand(Handle(*handle)) for gpu, handle in handles.items()}
        self.update_weights({**update, "ipc_handles": expanded})

"""Divides weights, gradients and the optimiser's state among the trainer's processes (`training.shard`).

With FSDP2, a process holds a part of each parameter as a DTensor (torch.distributed.fsdp.fully_shard). With DeepSpeed's
ZeRO stage 3 (Rajbhandari et al. 2020), parameters are empty but for the time in which a layer needs them.

Imports torch: only the trainer process imports this module.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate import DistributedType, PartialState
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, distribute_tensor
from trl.models.utils import unwrap_model_for_generation

from evorun.training.config import TrainingConfig

VARIABLES = {
    "fsdp2": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        # A checkpoint has whole tensors, so that another number of processes can resume from it.
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    },
    "zero3": {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT": "false",
    },
}
"""The configuration of accelerate by kind of sharding, in the variables that `accelerate launch` sets."""


def configure(training: TrainingConfig, *, gpu: bool) -> None:
    """Let accelerate shard as configured; called before the trainer's arguments are made."""
    if training.shard is not None:
        os.environ.update(VARIABLES[training.shard])
        if training.shard == "zero3" and not gpu:
            os.environ["DS_ACCELERATOR"] = "cpu"


class ShardsWeights:
    """A trainer of transformers whose accelerator shards weights; a base beside that trainer."""

    accelerator: Any
    args: Any
    model: Any
    policy: Any
    _save: Any

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator: on CPUs too, and with the precision of the other trainers."""
        shared = PartialState._shared_state
        # accelerate uses FSDP on GPUs alone; torch needs none for it.
        if os.environ.get("ACCELERATE_USE_FSDP") == "true" and shared["distributed_type"] == DistributedType.MULTI_CPU:
            shared["distributed_type"] = DistributedType.MULTI_GPU
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and plugin.fsdp_version == 2 and self.accelerator.mixed_precision == "bf16":
            # accelerate's own policy rounds gradients before they are summed, and the outputs: log-probabilities, whose
            # differences are importance ratios.
            plugin.mixed_precision_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the trained weights alone; transformers would gather the frozen ones too."""
        if not is_sharded(self.model):
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]
            return
        gathered = gather_trained(self.policy)
        if self.args.should_save:
            self._save(output_dir, state_dict=gathered)


def is_sharded(model: Any) -> bool:
    """Return whether each process holds only a part of a model's weights."""
    return any(isinstance(parameter, DTensor) or _has_zero(parameter) for parameter in model.parameters())


def full_shape(parameter: Any) -> torch.Size:
    """Return the shape of a parameter, of which this process may hold a part."""
    shape: torch.Size = parameter.ds_shape if _has_zero(parameter) else parameter.shape
    return shape


def own_part(parameter: Any) -> torch.Tensor:
    """Return the values of a parameter that this process keeps: its own part, with ZeRO a copy of all.

    With ZeRO, all processes must call this together.
    """
    values: torch.Tensor = parameter.detach()
    if _has_zero(parameter):
        with _gathered(parameter):
            return parameter.detach().clone()  # type: ignore[no-any-return]
    return values.to_local() if isinstance(values, DTensor) else values


def put(parameter: Any, values: torch.Tensor) -> None:
    """Write values into a parameter: those of this process's part, or of all of it.

    With ZeRO, all processes must call this together.
    """
    if _has_zero(parameter):
        with _gathered(parameter, modifier_rank=0):
            parameter.copy_(values)
        return
    if isinstance(parameter, DTensor) and values.shape == parameter.shape:
        values = distribute_tensor(
            values.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
        ).to_local()
    own_part(parameter).copy_(values)


def gather_trained(model: Any) -> dict[str, torch.Tensor]:
    """Return the trained weights of a sharded model on the first process, in main memory; on the others, nothing.

    All processes must call this together.
    """
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    gathered = {name: buffer for name, buffer in model.state_dict().items() if name not in names}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            own = parameter.detach()
            values = own.full_tensor() if isinstance(own, DTensor) else own_part(parameter)
            if PartialState().is_main_process:
                gathered[name] = values.cpu()
    return gathered if PartialState().is_main_process else {}


def put_trained(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Write whole tensors, as `gather_trained` returns them, into a sharded model. All processes must call this."""
    buffers = dict(model.named_buffers())
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    with torch.no_grad():
        for name, values in weights.items():
            if name in trained:
                put(trained[name], values)
            elif name in buffers:
                buffers[name].copy_(values)


def begin_sharding(model: Any, precise: Any) -> None:
    """Prepare a model of FSDP2 whose parts also run alone; called before any of them has run.

    precise: a part whose weights FSDP2 shall not round, though others compute in bfloat16.
    """
    # torch has no public way to give a part of a model that accelerate shards a policy of its own.
    state = precise._get_fsdp_state()
    for holder in (state, *state._fsdp_param_groups):
        name = "_mp_policy" if holder is state else "mp_policy"
        setattr(holder, name, MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False))
    # The first module to run becomes the root, which must contain all others.
    model._get_fsdp_state()._lazy_init()


def release(model: Any) -> None:
    """Let each process hold its own part alone, also where an evaluation has left it the whole of some layers."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@contextmanager
def whole(trainer: Any) -> Iterator[None]:
    """Let every process hold all weights while the block runs, so that each can use the model at its own pace.

    All processes must begin and end the block together.
    """
    parts = [module for module in trainer.policy.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False)
        part.unshard()
    zero = any(_has_zero(parameter) for parameter in trainer.policy.parameters())
    try:
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) if zero else nullcontext():
            yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True)
            part.reshard()


def _has_zero(parameter: Any) -> bool:
    return hasattr(parameter, "ds_id")


def _gathered(parameter: Any, modifier_rank: int | None = None) -> Any:
    import deepspeed

    return deepspeed.zero.GatheredParameters([parameter], modifier_rank=modifier_rank)

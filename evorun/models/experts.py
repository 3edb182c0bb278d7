"""Finds the experts and the routers of a sparse model (mixture of experts) of transformers.

transformers stacks the weights of a layer's experts in two parameters of shape [experts, ...]: `gate_up_proj`, which
joins gate and up (`up_proj` without a gate), and `down_proj`. They are no linear layers, whose types would find them.

Imports torch: only code that has already loaded a model, or its skeleton, imports this module.
"""

from typing import Any

import torch

JOINED = "gate_up_proj"
"""Name of the parameter that joins the gate and up projections of all experts of a layer."""
_STACKED = (JOINED, "up_proj", "down_proj")


def find_experts(model: Any) -> list[str]:
    """Return the names of the parameters that stack the weights of a layer's experts; empty for a dense model."""
    return [
        f"{owner}.{name}"
        for owner, module in model.named_modules()
        for name, weights in module.named_parameters(recurse=False)
        if name in _STACKED and weights.dim() == 3
    ]


def find_routers(model: Any) -> list[str]:
    """Return the names of the modules beside the experts that weigh them: one row for each expert, or a single one."""
    counts = {name.rpartition(".")[0]: len(model.get_parameter(name)) for name in find_experts(model)}
    routers = []
    for experts, count in counts.items():
        layer = experts.rpartition(".")[0]
        for name, module in model.get_submodule(layer).named_children():
            weight = getattr(module, "weight", None)
            if isinstance(weight, torch.Tensor) and weight.dim() == 2 and len(weight) in (1, count):
                routers.append(f"{layer}.{name}")
    return routers

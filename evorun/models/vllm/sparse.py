"""Adapters on sparse models in vLLM 0.32: the layers on which it takes them, and the arguments that it needs.

Read in its sources: vllm/lora/model_manager.py, vllm/lora/layers/fused_moe.py, and the models' own files.
"""

from collections.abc import Set
from typing import Any

from evorun.models.experts import find_experts, find_routers

EXPERTS = "experts"
EXPERTS_SERVED = frozenset(
    {
        *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "GptOssForCausalLM"),
        *("OlmoeForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
    }
)
"""Architectures that take adapters, and whose experts have the same names in vLLM as in transformers."""
STACKED = frozenset({"GptOssForCausalLM"})
"""Those of them that read stacked experts as PEFT writes them, without an argument (`is_3d_moe_weight`)."""
ABSORBED = "kv_b_proj"
"""vLLM multiplies this layer of latent attention into others when it starts, and ignores its adapter from then on."""


def describe_unserved(model: Any, layers: Set[str], *, cpu: bool) -> str | None:
    """Return what of an adapter vLLM would fail at or ignore, and why; None if it takes all.

    model: without weights. layers: last components of names; the experts of a layer are `experts`. cpu: vLLM's CPU
    build.
    """
    name = type(model).__name__
    if not find_experts(model):
        return None
    if cpu:
        return "a layer of a sparse model, for which vLLM's CPU build has no kernels with adapters"
    if ABSORBED in layers:
        return f"{ABSORBED}, which vLLM merges into its attention at the start, without an adapter"
    if routers := sorted({router.rpartition(".")[2] for router in find_routers(model)} & layers):
        return f"the router ({', '.join(routers)}), on which adapters are untested with vLLM"
    if EXPERTS in layers and name not in EXPERTS_SERVED:
        return f"the experts, on which vLLM takes no adapter of {name}"
    return None


def find_adapter_arguments(model: Any) -> dict[str, Any]:
    """Return the arguments of `AsyncEngineArgs` that adapters on a sparse model need; none on a dense one."""
    stacked = not find_experts(model) or type(model).__name__ in STACKED
    return {} if stacked else {"enable_mixed_moe_lora_format": True}

"""The memory that a model takes, by its name and its config.json; no weight is read."""

import json
from pathlib import Path
from typing import Any

from evorun.models.config import ModelConfig
from evorun.runner.estimates import BILLIONS
from evorun.runner.plan_records import PlannedMemory

TOTAL_BILLIONS = {**BILLIONS, "smollm2_135m": 0.135, "deepseek_v3_1": 671.0, "gpt_oss_120b": 117.0}
"""Billions of parameters, by the models' cards: of a mixture of experts all of them."""
BYTES = {"awq": 0.5, "compressed-tensors": 0.5, "mxfp4": 0.5, "fp8": 1.0, "float32": 4.0}
"""Bytes per parameter by quantisation, else by dtype; others have 2. 4-bit weights without their scales."""
GIB = 2**30


def estimate_memory(model: ModelConfig) -> PlannedMemory:
    """Return the memory of a model: parameters x bytes, and keys and values of each layer for each token in 16 bit."""
    billions = TOTAL_BILLIONS.get(model.name)
    size = BYTES.get(model.quantization or model.dtype, 2.0)
    layers = _read_config(model.id)
    cache = None
    if layers is not None:
        heads = layers.get("num_key_value_heads") or layers["num_attention_heads"]
        width = layers.get("head_dim") or layers["hidden_size"] / layers["num_attention_heads"]
        cache = 2 * layers["num_hidden_layers"] * heads * width * 2 * 1000 / GIB
    return PlannedMemory(
        model=model.name,
        weights_gib=None if billions is None else billions * 1e9 * size / GIB,
        cache_gib_per_1000_tokens=cache,
        context_length=model.context_length,
    )


def _read_config(model: str) -> dict[str, Any] | None:
    """Return a model's config.json from its folder or the hub's cache on this machine; None where neither has it."""
    file: Any = Path(model) / "config.json"
    if not file.is_file():
        from huggingface_hub import try_to_load_from_cache

        file = try_to_load_from_cache(model, "config.json") if model.count("/") == 1 else None
    if not isinstance(file, str | Path):
        return None
    try:
        values = json.loads(Path(file).read_text())
        values = values.get("text_config", values)
        return values if {"num_hidden_layers", "num_attention_heads", "hidden_size"} <= values.keys() else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None

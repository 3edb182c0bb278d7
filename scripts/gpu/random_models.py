"""Models with random weights and the shapes of published ones, for machines without a network."""

from pathlib import Path
from typing import Any

from evorun.models.embedded import ensure
from figures import Setting

FAMILIES = ("dense", "moe")
SIZES = ("full", "tiny")

# Shapes of Qwen/Qwen2-1.5B-Instruct and, at a quarter of its width and depth, of Qwen/Qwen3-30B-A3B (config.json).
_DENSE = {
    "full": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,  # of 32 each, the fewest that vLLM's CPU build takes
        "num_key_value_heads": 1,
    },
}
_MOE = {
    "full": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_experts": 32,
        "num_experts_per_tok": 8,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
}
_VOCABULARY = {"full": 151936, "tiny": 49152}
"""Sizes of the embeddings: Qwen's, and the embedded model's, whose tokenizer every model here has."""


def write_random_model(family: str, setting: Setting) -> Path:
    """Return the folder of a family's model in bfloat16, with tokenizer and chat template; write it the first time.

    The weights are drawn on the device, since a CPU takes minutes for the full sizes.
    """
    folder = setting.models / family
    if folder.exists():
        return folder
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ensure())
    common: dict[str, Any] = {
        "vocab_size": _VOCABULARY[setting.size],
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    kind, shape = {"dense": ("qwen2", _DENSE), "moe": ("qwen3_moe", _MOE)}[family]
    config = AutoConfig.for_model(kind, **shape[setting.size], **common)
    automatic: Any = AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(setting.device):
        model = automatic.from_config(config, dtype=torch.bfloat16)
    unfinished = folder.with_suffix(".part")  # a part may be cut off
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)
    del model
    torch.cuda.empty_cache()  # or the memory counts in the figures of processes beside this one
    return folder

"""Sparse models of a few random layers: Qwen3-MoE, DeepSeek-V3 and gpt-oss, whose tokens are bytes.

Their widths are multiples of 32, which vLLM's CPU kernels for experts need.
"""

from pathlib import Path
from typing import Any

from token_server import HARMONY, write_byte_tokenizer

EXPERTS = 4
_SHAPE: dict[str, Any] = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"max_position_embeddings": 2048, "num_experts_per_tok": 2, "tie_word_embeddings": False},
}
_LATENT: dict[str, Any] = {
    **{"q_lora_rank": 16, "qk_nope_head_dim": 32, "v_head_dim": 32},
    # DeepSeek's own: vLLM's CPU build has latent attention for 512 + 64 alone, and rotates pairs wrongly without YaRN.
    **{"kv_lora_rank": 512, "qk_rope_head_dim": 64},
    "rope_parameters": {
        **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0},
        **{"mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64},
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        **_SHAPE,
        **{"intermediate_size": 64, "moe_intermediate_size": 32, "num_experts": EXPERTS, "head_dim": 32},
    },
    "deepseek_v3": {
        **{**_SHAPE, **_LATENT, "num_key_value_heads": 2, "intermediate_size": 64, "moe_intermediate_size": 32},
        # a dense layer, and one with experts, a shared one beside them
        **{"first_k_dense_replace": 1, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1},
        **{"topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},  # vLLM reads the last two
    },
    "gpt_oss": {
        **{**_SHAPE, "intermediate_size": 32, "num_local_experts": EXPERTS, "head_dim": 32, "sliding_window": 16},
        # vLLM reads no other kind of positions
        "rope_parameters": {
            **{"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0},
            **{"truncate": False, "original_max_position_embeddings": 512},
        },
    },
}
NAMES = tuple(CONFIGS)


def make_sparse(name: str, *, vocabulary: int = 100, eos: int = 0) -> Any:
    """Return a random model, the same each time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    ends = {"eos_token_id": eos, "pad_token_id": eos, "bos_token_id": eos}
    config = AutoConfig.for_model(name, vocab_size=vocabulary, **ends, **CONFIGS[name])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def write_sparse(name: str, folder: Path) -> Path:
    """Write a model with its tokenizer into a folder, and return the folder."""
    from transformers import AutoTokenizer

    write_byte_tokenizer(folder, **HARMONY) if name == "gpt_oss" else write_byte_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    make_sparse(name, vocabulary=len(tokenizer), eos=tokenizer.eos_token_id).save_pretrained(folder)
    return folder

"""A model of gpt-oss's form: a few thousand random parameters; its tokens are bytes and harmony's special ones."""

from pathlib import Path
from typing import Any

from evorun.models.base import Completion
from token_server import HARMONY, write_byte_tokenizer

FROM_USER = "<|start|>user<|message|><tool_response>\n{}\n</tool_response><|end|><|start|>assistant"
"""The text between the turns of a model that made no call in harmony's way, as random tokens make none."""


def between_turns(completion: Completion, answer: str) -> str:
    """Return what stands between a turn and the next one: an end of the turn, where it has none, and the answer."""
    return ("" if completion.finish_reason == "stop" else "<|end|>") + FROM_USER.format(answer)


def write_tiny_gpt_oss(folder: Path) -> Path:
    """Write the model into a folder and return it."""
    import torch
    from transformers import AutoTokenizer, GptOssConfig, GptOssForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(write_byte_tokenizer(folder, **HARMONY))
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "head_dim": 8, "num_hidden_layers": 2, "sliding_window": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 2, "num_experts_per_tok": 1}
    rope: Any = {"rope_type": "default", "rope_theta": 150000.0}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    config = GptOssConfig(
        vocab_size=len(tokenizer), max_position_embeddings=2048, rope_parameters=rope, **size, **heads, **ends
    )
    model = GptOssForCausalLM(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    model.save_pretrained(folder)
    return folder

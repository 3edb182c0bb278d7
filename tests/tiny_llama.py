"""Llamas of a few random layers with a short tokenizer: those that train, and what engines can serve."""

import json
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from evorun.models.embedded import ensure

TOKENS = 2048


def write_short_tokenizer(folder: Path, special: Container[str] | None = None) -> Any:
    """Write the first tokens of the embedded model's tokenizer, with its chat template, into a folder; return it.

    To load all 49,152 takes longer than to train on a few of them. special: of the special tokens, those that stay so.
    """
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(ensure() / name, folder / name)
    whole = json.loads((ensure() / "tokenizer.json").read_text())
    if special is not None:
        whole["added_tokens"] = [one for one in whole["added_tokens"] if one["content"] in special]
    pairs = whole["model"]
    pairs["vocab"] = {text: number for text, number in pairs["vocab"].items() if number < TOKENS}
    pairs["merges"] = [pair for pair in pairs["merges"] if "".join(pair) in pairs["vocab"]]
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return AutoTokenizer.from_pretrained(folder)


def write_tiny_llama(folder: Path, hidden_size: int = 8, **settings: Any) -> Path:
    """Write the model into a folder, as any other that `model=local model.id=FOLDER` serves, and return it.

    settings: others of its configuration.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = write_short_tokenizer(folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            intermediate_size=2 * hidden_size,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **settings,
        )
    )
    model.save_pretrained(folder)
    return folder


def write_talking_llama(folder: Path, layers: int = 3) -> Path:
    """Write a model whose texts are of many lengths and clear of special tokens, and return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = write_short_tokenizer(folder, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            initializer_range=0.3,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    with torch.no_grad():
        others = [one for one in tokenizer.all_special_ids if one != tokenizer.eos_token_id]
        model.lm_head.weight[others] = 0  # hardly ever drawn
        model.lm_head.weight[tokenizer.eos_token_id] *= 1.5  # now likely, now far from it
    model.save_pretrained(folder)
    return folder

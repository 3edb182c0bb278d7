"""Llamas of a few random layers with the embedded model's tokenizer: those that train, and what engines can serve."""

from pathlib import Path

from evorun.models.embedded import ensure


def write_tiny_llama(folder: Path) -> Path:
    """Write the model into a folder, as any other that `model=local model.id=FOLDER` serves, and return it."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(ensure())
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=8,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_talking_llama(folder: Path) -> Path:
    """Write a model whose texts are of many lengths and clear of special tokens, and return its folder."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(ensure())
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
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
        model.lm_head.weight[tokenizer.eos_token_id] *= 2  # now likely, now far from it
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

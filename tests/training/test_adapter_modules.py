"""The modules that get an adapter."""

from types import SimpleNamespace

import pytest

from building import training_config

pytest.importorskip("peft")


def test_a_model_that_also_sees_is_adapted_where_text_passes() -> None:
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, Gemma3Config

    from evorun.training.weights import adapter

    text = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 16}
    sight = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    sight |= {"image_size": 28, "patch_size": 14}
    tokens = {"mm_tokens_per_image": 1, "boi_token_index": 297, "eoi_token_index": 298, "image_token_index": 299}
    base = AutoModelForCausalLM.from_config(Gemma3Config(text_config=text, vision_config=sight, **tokens))
    model = get_peft_model(base, adapter(training_config(rank=2), base))
    ids = torch.arange(16).reshape(2, 8)
    model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss.backward()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert len(trained) == 2 * 7 * 2  # A and B of seven linear layers in each of two blocks
    assert all(value.grad is not None for value in trained.values())


def test_a_model_that_also_sees_but_names_no_language_model_is_adapted_wholly() -> None:
    import torch

    from evorun.training.weights import adapter

    layer = ("model.layers.0.q_proj", torch.nn.Linear(1, 1))
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: None), named_modules=lambda: [layer])
    assert adapter(training_config(rank=2), model).exclude_modules is None

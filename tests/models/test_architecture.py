"""Sizes by config.json: against transformers' own models without weights, PEFT's adapters, and published figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from evorun.models.architecture import Architecture, _published, read_architecture
from evorun.models.config import ModelConfig
from evorun.runner.memory import GIB, count_adapter, weight_gib

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}
SPARSE = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12}
OTHERS = {
    "Mixtral": {"model_type": "mixtral", **TINY, "num_local_experts": 8, "num_experts_per_tok": 2},
    "Qwen3 MoE": {"model_type": "qwen3_moe", **TINY, **SPARSE, "num_experts": 8, "head_dim": 16},
    "Qwen2 MoE": {"model_type": "qwen2_moe", **TINY, **SPARSE, "num_experts": 8, "shared_expert_intermediate_size": 80},
    "DeepSeek": {
        "model_type": "deepseek_v3",
        **{**TINY, **SPARSE, **LATENT, "num_key_value_heads": 4},
        **{"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    },
    "no gate": {"model_type": "phi", **TINY, "num_key_value_heads": 4},
}


def without_weights(config: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **values))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("config", [*_published().values(), *OTHERS.values()], ids=[*_published(), *OTHERS])
def test_parameters_are_those_of_transformers_model(config: dict[str, Any]) -> None:
    config = {**config, "num_hidden_layers": 4}  # the first of DeepSeek's are dense
    model = without_weights(config)
    # Ours are of matrices: not of biases and norms.
    expected = sum(one.numel() for name, one in model.named_parameters() if one.dim() > 1 and "_gate.w" not in name)
    assert Architecture.from_config(config).parameters.total == pytest.approx(expected, rel=4e-4)


@pytest.mark.parametrize(("name", "billions"), [("deepseek-ai/DeepSeek-V3.1", 37), ("openai/gpt-oss-120b", 5.1 + 0.58)])
def test_a_token_passes_as_many_as_the_cards_say(name: str, billions: float) -> None:
    # gpt-oss' card leaves out the input embeddings, 201,088 x 2,880
    assert Architecture.from_config(_published()[name]).parameters.active / 1e9 == pytest.approx(billions, rel=0.02)


def test_gpt_oss_takes_the_memory_of_its_published_checkpoint() -> None:
    model = ModelConfig(name="gpt_oss_120b", id="openai/gpt-oss-120b", quantization="mxfp4")
    assert weight_gib(known(model), model) == pytest.approx(60.8, rel=0.01)  # its model card, table 1


def test_a_4_bit_model_has_16_bit_embeddings_and_scales() -> None:
    model = ModelConfig(name="a", id="Qwen/Qwen2.5-32B-Instruct-AWQ", dtype="float16", quantization="awq")
    embeddings = 2 * 152064 * 5120
    groups = (32_763_000_000 - embeddings) / 128
    bytes_ = 2 * embeddings + groups * (128 / 2 + 2 + 1 / 2)
    assert weight_gib(known(model), model) == pytest.approx(bytes_ / GIB, rel=1e-3)


def known(model: ModelConfig) -> Architecture:
    shape = read_architecture(model)
    assert shape is not None
    return shape


@pytest.mark.parametrize("name", ["google/gemma-3-4b-it", "openai/gpt-oss-120b", "Qwen/Qwen2.5-7B-Instruct"])
def test_sliding_layers_keep_their_window(name: str) -> None:
    config, shape = _published()[name], Architecture.from_config(_published()[name])
    kinds = without_weights({**config, "num_local_experts": 2} if "num_local_experts" in config else config).config
    sliding = sum(kind == "sliding_attention" for kind in kinds.layer_types)
    tokens, per_layer = 50_000, 2 * shape.kv_heads * shape.head_dim
    kept = sliding * config.get("sliding_window", 0) + (shape.layers - sliding) * tokens
    assert shape.kv_values(tokens) == per_layer * kept


def test_tensor_parallelism_splits_heads_and_repeats_latent_ones() -> None:
    shape = Architecture.from_config(_published()["Qwen/Qwen2.5-7B-Instruct"])
    assert [shape.splits_into(gpus) for gpus in (1, 2, 3, 4, 8)] == [True, True, False, True, False]  # of 28 heads
    assert shape.kv_values(10, 4) == shape.kv_values(10) / 4
    padded = Architecture.from_config(_published()["Qwen/Qwen2.5-72B-Instruct-AWQ"])
    assert padded.splits_into(8, group=128)
    assert padded.kv_values(10, 16) == padded.kv_values(10, 8)  # 8 heads of keys
    assert not Architecture.from_config(_published()["Qwen/Qwen2.5-72B-Instruct"]).splits_into(2, group=128)
    latent = Architecture.from_config(_published()["deepseek-ai/DeepSeek-V3.1"])
    assert latent.kv_values(10, 8) == 61 * 10 * (512 + 64)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("Llama", ["all-linear"]),
        ("Llama", ["q_proj", "down_proj"]),
        ("Llama", ["all-linear", "lm_head"]),
        ("Qwen3 MoE", ["all-linear"]),
        ("Qwen3 MoE", ["gate_proj", "up_proj", "down_proj"]),
        ("DeepSeek", ["all-linear"]),
        ("DeepSeek", ["q_a_proj", "o_proj", "lm_head"]),
    ],
)
@pytest.mark.filterwarnings("ignore:The following .*_pattern keys")
def test_an_adapter_has_as_many_parameters_as_pefts(name: str, targets: list[str]) -> None:
    import torch
    from peft import get_peft_model

    from building import training_config
    from evorun.training.weights import adapter

    config = {**OTHERS, "Llama": {"model_type": "llama", **TINY}}[name]
    training = training_config(rank=8, target_modules=targets)
    with torch.device("meta"):
        model = without_weights(config)
        made = get_peft_model(model, adapter(training, model))
    trained = sum(one.numel() for one in made.parameters() if one.requires_grad)
    assert count_adapter(Architecture.from_config(config), 8, targets) == trained


def test_a_folders_own_config_wins_and_a_foreign_one_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {**TINY, "model_type": "gemma3_text"}}))
    model = ModelConfig(name="local", id=str(tmp_path))
    assert known(model).vocabulary == 128
    for content in ("", "[]", '{"n_embd": 3}', json.dumps({**TINY, "num_attention_heads": 0})):
        (tmp_path / "config.json").write_text(content)
        assert read_architecture(model) is None

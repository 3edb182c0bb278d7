"""An adapter on the output layer, of a model whose embedding has the same weights: trained, saved, merged, refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
import steps
import torch
from safetensors.torch import load_file

from building import make_job, policy_gradient, training_config
from evorun.errors import ConfigError
from evorun.models.adapters import merge_adapter, read_adapter
from evorun.runner.requirements import require_served_targets
from evorun.training import output_layer, weights
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.rows_trainer import score
from evorun.training.serving import Serving
from evorun.training.wire import Export

TARGETS = ["all-linear", "lm_head"]


def tied() -> Any:
    """Return a tiny model whose output layer and embedding are one."""
    model, _ = steps.tiny()
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    """Return a trainer of a tied model under an adapter that changes each of its layers."""
    told = policy_gradient(temperature=0.7)
    job = make_job(tmp_path, tmp_path, training_config(rank=4, alpha=8.0, target_modules=TARGETS), told)
    made = PolicyGradientTrainer(job, told, tied(), steps.tiny()[1], steps.Batches([]))  # type: ignore[arg-type]
    torch.manual_seed(1)
    for name, one in made.policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(one, std=0.3)
    return made


def passed(model: Any, ids: torch.Tensor, learned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies by the model's ordinary forward pass, at a temperature of 0.7."""
    every = (model(input_ids=ids).logits[:, :-1] / 0.7).log_softmax(-1)
    own = every.gather(-1, ids[:, 1:, None])[..., 0]
    return own * learned[:, 1:], -(every.exp() * every).sum(-1) * learned[:, 1:]


def test_log_probabilities_and_gradients_are_those_through_the_adapter(
    trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of three tokens; with the adapter off they are the base model's."""
    monkeypatch.setattr(output_layer, "TOKENS_AT_ONCE", 3)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, steps.VOCABULARY, (3, 9), generator=generator)
    learned = torch.rand(ids.shape, generator=generator) < 0.6
    policy, found = trainer.policy, {}
    for name, function in (("scored", score), ("passed", passed)):
        policy.zero_grad()
        logprobs, entropy = function(policy, ids, learned)
        (logprobs * torch.arange(1.0, logprobs.numel() + 1).view_as(logprobs)).sum().backward()
        gradients = [one.grad.clone() for one in policy.parameters() if one.grad is not None]
        with torch.no_grad(), policy.disable_adapter():
            reference = function(policy, ids, learned)[0]
        found[name] = (logprobs.detach(), entropy.detach(), reference, *gradients)
    for mine, theirs in zip(found["scored"], found["passed"], strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found["scored"][0], found["scored"][2], atol=0.1)
    nothing = score(policy, ids, torch.zeros_like(learned))[0]
    nothing.sum().backward()  # a process without a row takes part
    assert not nothing.detach().any()


def test_what_is_saved_is_the_adapter_alone_and_merges_into_the_output_layer_alone(
    trainer: Any, tmp_path: Path
) -> None:
    serving = Serving(None, None, SimpleNamespace(use=lambda *_: torch.no_grad()))  # type: ignore[arg-type]
    serving.bind(trainer)
    serving._carry_out(Export(str(tmp_path / "adapter"), "tiny"))
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {name.rpartition("lora_")[2] for name in saved} == {"A.weight", "B.weight"}
    assert sum("lm_head" in name for name in saved) == 2
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        expected = trainer.policy(input_ids=ids).logits
        whole = merge_adapter(tied(), read_adapter(tmp_path / "adapter"), "tiny")
        assert torch.allclose(whole(input_ids=ids).logits, expected, atol=1e-4)
    assert torch.equal(whole.model.embed_tokens.weight, tied().model.embed_tokens.weight)
    whole.save_pretrained(tmp_path / "whole")  # with an output layer of its own
    again = type(whole).from_pretrained(tmp_path / "whole")
    with torch.no_grad():
        assert torch.allclose(again(input_ids=ids).logits, expected, atol=1e-4)


def test_all_linear_and_a_name_are_the_layers_of_the_released_code_of_mpo() -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(num_hidden_layers=1, tie_word_embeddings=True))
    released = {"down_proj", "gate_proj", "k_proj", "lm_head", "o_proj", "q_proj", "up_proj", "v_proj"}
    assert set(weights.adapter(training_config(target_modules=TARGETS), model).target_modules) == released


def test_where_it_would_have_no_effect_or_fail_after_an_update_it_is_refused() -> None:
    from transformers import (
        Gemma2Config,
        Gemma2ForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    with torch.device("meta"):
        llama, qwen, gemma = (
            kind(config(num_hidden_layers=1))
            for kind, config in (
                (LlamaForCausalLM, LlamaConfig),
                (Qwen2ForCausalLM, Qwen2Config),
                (Gemma2ForCausalLM, Gemma2Config),
            )
        )
    training = training_config(target_modules=TARGETS)
    with pytest.raises(
        ConfigError, match=r"^training\.target_modules: .*method=sft.*use all-linear, which leaves it out$"
    ):
        weights.refuse_output_layer(llama, TARGETS)
    weights.refuse_output_layer(llama, ["all-linear"])
    with pytest.raises(ConfigError, match=r"vLLM takes no adapter for Qwen2ForCausalLM; expected engine=transformers"):
        require_served_targets(qwen, training)
    require_served_targets(qwen, training_config())
    require_served_targets(llama, training)
    weights.require_targets(qwen, TARGETS)
    with pytest.raises(ConfigError, match=r"scales or caps its logits \(final_logit_softcapping\)"):
        weights.require_targets(gemma, TARGETS)
    weights.require_targets(gemma, ["all-linear"])

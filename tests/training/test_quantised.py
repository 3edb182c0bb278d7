"""A quantised base under an adapter, against a plain model of the same weights, dequantised by bitsandbytes."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("bitsandbytes")
import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit
from ppo_reference import fill
from steps import EXACT, Batches, Stepped, random_rows, watched

from building import make_job, policy_gradient, proximal_policy, training_config
from evorun.errors import ConfigError
from evorun.models import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.proximal_policy import ProximalTrainer
from evorun.training.requirements import require_fitting
from evorun.training.rollouts import Decoding
from evorun.training.speed import flops_per_token
from evorun.training.weights import load
from evorun.training.wire import Job
from tiny_llama import write_talking_llama

TOLD = policy_gradient(steps=2, kl=0.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking_llama(tmp_path_factory.mktemp("model"))


def job_of(model: Path, folder: Path, kind: str | None, **training: Any) -> Job:
    return make_job(model, folder, training_config(**{**EXACT, "quantise": kind, **training}), TOLD)


def dequantised(quantised: Any, model: Path, folder: Path) -> Any:
    """Return a plain model of the weights that a quantised one stands for."""
    plain, _ = load(job_of(model, folder, None))
    with torch.no_grad():
        for name, layer in quantised.named_modules():
            if isinstance(layer, bitsandbytes.nn.Linear4bit):
                plain.get_submodule(name).weight.copy_(dequantize_4bit(layer.weight.data, layer.weight.quant_state))
            elif isinstance(layer, bitsandbytes.nn.Linear8bitLt):
                plain.get_submodule(name).weight.copy_(layer.weight.data * layer.weight.SCB[:, None] / 127)
    return plain


def learn(job: Job, weights: Any, tokenizer: Any) -> Stepped:
    batches = Batches([random_rows(5, tools=True), random_rows(4, seed=1)])
    trainer = PolicyGradientTrainer(job, TOLD, weights, tokenizer, batches)  # type: ignore[arg-type]
    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.bfloat16().float()  # TRL rounds the first values of a quantised model's
    return watched(trainer)


# int8 rounds the activations of a pass, too
@pytest.mark.parametrize(
    ("kind", "error", "apart"), [("nf4", 0.2, 1e-4), pytest.param("int8", 0.02, 0.1, marks=pytest.mark.nightly)]
)
def test_gradients_of_the_adapter_are_those_on_dequantised_weights(
    kind: str, error: float, apart: float, model: Path, tmp_path: Path
) -> None:
    job = job_of(model, tmp_path, kind)
    quantised, tokenizer = load(job)
    plain, original = dequantised(quantised, model, tmp_path), load(job_of(model, tmp_path, None))[0]
    for name, value in original.named_parameters():
        rounded = (plain.get_parameter(name) - value).norm() / value.norm()
        layer = name.rpartition(".")[0].rpartition(".")[2]
        assert 0 < rounded < error if layer.endswith("_proj") else rounded == 0, name
    # Decoding comes before a step; on some CPUs it repacks the weights.
    asked = Request(messages=(Message(role="user", content="Say."),), sampling=Sampling(temperature=0.0, max_tokens=8))
    said = [
        decoding.decode(copy.copy(weights), [asked], "newest")[0].completions[0].text
        for weights in (quantised, plain)
        for decoding in [Decoding(tokenizer, ModelConfig(name="tiny", id=str(model)), 2, 0)]
    ]
    one, other = learn(job, quantised, tokenizer), learn(job_of(model, tmp_path, None), plain, tokenizer)
    assert len(one.gradients) == 2
    for mine, theirs in zip(one.gradients, other.gradients, strict=True):
        assert {value.dtype for value in mine.values()} == {torch.float32}
        for name, value in theirs.items():
            assert float((mine[name] - value).norm()) <= apart * float(value.norm()) + 1e-6, name
    for mine_figures, theirs_figures in zip(one.figures, other.figures, strict=True):
        for name in ("loss", "grad_norm", "kl", "sampler_kl"):
            assert mine_figures[name] == pytest.approx(theirs_figures[name], rel=apart, abs=apart / 10), name
    if kind == "nf4":
        assert said[0] == said[1]


@pytest.mark.nightly
@pytest.mark.parametrize("critic", ["model", "head"])
def test_ppo_s_gradients_are_those_on_dequantised_weights(critic: str, model: Path, tmp_path: Path) -> None:
    told, apart = proximal_policy(steps=2, critic=critic), 1e-4
    quantised, tokenizer = load(job_of(model, tmp_path, "nf4"))
    plain = dequantised(quantised, model, tmp_path)
    found = []
    for own, weights in (("nf4", quantised), (None, plain)):
        job = make_job(model, tmp_path, training_config(**{**EXACT, "learning_rate": 0.05, "quantise": own}), told)
        batches = Batches([random_rows(5, tools=True), random_rows(4, seed=1)])
        trainer = ProximalTrainer(job, told, weights, tokenizer, batches)  # type: ignore[arg-type]
        for role, part in (("policy", trainer.policy), ("critic", trainer.model.critic)):
            fill(((name, one) for name, one in part.named_parameters() if one.requires_grad), role)
        found.append(watched(trainer))
    one, other = found
    assert len(one.gradients) == 2
    for mine, theirs in zip(one.gradients, other.gradients, strict=True):
        assert mine.keys() == theirs.keys()
        assert any("critic" in name and "lora" in name for name in mine)
        assert {value.dtype for value in mine.values()} == {torch.float32}
        for name, value in theirs.items():
            assert float((mine[name] - value).norm()) <= apart * float(value.norm()) + 1e-6, name
    for mine_figures, theirs_figures in zip(one.figures, other.figures, strict=True):
        for name in ("loss", "value_loss", "grad_norm"):
            assert mine_figures[name] == pytest.approx(theirs_figures[name], rel=apart, abs=apart / 10), name


@pytest.mark.parametrize(
    ("kind", "critic", "refused"),
    [("nf4", "full", "method.critic: expected model or head"), ("int8", "model", "training.quantise: expected nf4")],
)
def test_ppo_refuses_what_has_no_gradient_or_another_one(kind: str, critic: str, refused: str) -> None:
    with pytest.raises(ConfigError, match=refused):
        require_fitting(proximal_policy(critic=critic), training_config(quantise=kind, dropout=0.0))


def test_packed_weights_count_as_what_they_stand_for(model: Path, tmp_path: Path) -> None:
    quantised, plain = (load(job_of(model, tmp_path, kind))[0].requires_grad_(False) for kind in ("nf4", None))
    assert flops_per_token(quantised) == flops_per_token(plain)
    assert sum(math.prod(tensor.shape) for tensor in quantised.parameters()) < flops_per_token(plain) / 4

"""Print what an experiment trains of a model of known sizes: parameters of policy and critic, optimiser, schedule.

    python scripts/count_trained_parameters.py experiment=mpo/essay method=mpo
    python scripts/count_trained_parameters.py method=mpo task=essay

The arguments are those of a run whose method is ppo or mpo. No weights are needed: the model is built without memory
from the sizes that Qwen publishes for Qwen2-1.5B-Instruct, the policy of MPO's experiments. docs/ppo.md has the table.
"""

import sys
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from peft import get_peft_model
from transformers import AutoModelForCausalLM, Qwen2Config

from evorun.cli.compose import register
from evorun.cli.groups import config_folder
from evorun.runner.settings import check
from evorun.training.weights import adapter
from evorun.training.wire import ProximalPolicy

SIZES = Qwen2Config(
    vocab_size=151936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
"""config.json of Qwen/Qwen2-1.5B-Instruct, as far as parameters depend on it."""


def main(words: list[str]) -> None:
    """Print a table."""
    register()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("config", overrides=words), resolve=True)
    config = check(composed)
    training, objective = config.training, config.method.make_objective(None)  # type: ignore[arg-type]
    if training is None or not isinstance(objective, ProximalPolicy):
        raise SystemExit("expected a run with method=ppo or method=mpo")
    with torch.device("meta"):
        model, own = _model(), _model().get_decoder()
        values = SIZES.hidden_size
        if objective.settings.critic == "full":
            values += _count(own.parameters())
        else:
            lora = adapter(training, own)
            lora.task_type = None
            values += _trained(get_peft_model(own, lora))
        policy = get_peft_model(model, adapter(training, model))
    steps = objective.settings.epochs * objective.settings.minibatches
    rows = {
        "policy": f"{_trained(policy):,} of an adapter (rank {training.rank}, alpha {training.alpha:g}, "
        f"{', '.join(training.target_modules)})",
        "critic": f"{values:,} ({objective.settings.critic})",
        "optimiser": f"AdamW, {training.learning_rate:g}, betas {training.beta1:g} and {training.beta2:g}, epsilon "
        f"{training.epsilon:g}, weight decay {training.weight_decay:g}",
        "gradients clipped at": f"{training.max_grad_norm}",
        "schedule": f"{training.schedule}, by {training.schedule_by.replace('_', ' ')}",
        "optimiser steps": f"{steps} a batch",
    }
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def _model() -> Any:
    return AutoModelForCausalLM.from_config(SIZES)  # type: ignore[no-untyped-call]


def _trained(model: Any) -> int:
    return _count(parameter for parameter in model.parameters() if parameter.requires_grad)


def _count(parameters: Any) -> int:
    return sum(parameter.numel() for parameter in parameters)


if __name__ == "__main__":
    main(sys.argv[1:])

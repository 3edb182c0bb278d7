"""Checks the trainer's requirements on this machine and on the model before the run incurs any cost."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from omegaconf import OmegaConf

from evorun.errors import ConfigError, EngineError, TrainingError, first_line
from evorun.models.base import Message
from evorun.models.chat import load_tokenizer, require_chat_template
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.requirements import find_missing_packages, load_skeleton
from evorun.models.tinker.sampling import end_tokens
from evorun.training.chat_template import tokenize_example
from evorun.training.config import TrainingConfig
from evorun.training.wire import Objective, ProximalPolicy

PACKAGES = ("torch", "transformers", "accelerate", "trl", "peft", "datasets")

_CHAT = (Message(role="user", content="Which?"), Message(role="assistant", content="This one."))


OPTIONAL_PACKAGES = {"zero3": "deepspeed", "nf4": "bitsandbytes", "int8": "bitsandbytes"}
"""Packages by values of `training.shard` and `training.quantise`; the extra has the package's name."""


def require_packages(training: TrainingConfig) -> None:
    """Raise TrainingError if a package is not installed."""
    for package in find_missing_packages(PACKAGES):
        raise TrainingError(
            f"training needs the package {package}, which is not installed: pip install 'evorun[train]'"
        )
    for key, value in (("shard", training.shard), ("quantise", training.quantise)):
        package = OPTIONAL_PACKAGES.get(value or "", "torch")
        if find_missing_packages((package,)):
            raise TrainingError(
                f"training.{key}={value} needs the package {package}, which is not installed: "
                f"pip install 'evorun[{package}]'"
            )


def require_fitting(objective: Objective, training: TrainingConfig) -> None:
    """Raise ConfigError for training settings that do not fit the objective. Loads nothing."""
    launched = {} if training.accelerate_config is None else _given(Path(training.accelerate_config).expanduser())
    if _has_fsdp1(launched):
        raise ConfigError(
            "training.accelerate_config: expected fsdp_version: 2 with FSDP, whose first version cannot give a process "
            "all weights for completions; training.shard=fsdp2 needs no file"
        )
    if training.quantise is not None and _shards(launched):
        raise ConfigError(
            f"training.quantise: expected null with an accelerate_config that shards weights, got {training.quantise}: "
            "each process holds all quantised weights"
        )
    if not isinstance(objective, ProximalPolicy):
        return
    if training.dropout:
        raise ConfigError(
            "training.dropout: expected 0 with PPO, which would mistake differences between two passes for a change of "
            f"the policy, got {training.dropout}"
        )
    if training.weights == "full" and objective.settings.critic != "full":
        raise ConfigError(
            "method.critic: expected full with training.weights=full, since one learning rate trains policy and critic "
            f"and an adapter needs a larger one, got {objective.settings.critic}"
        )
    if training.shard == "zero3" or _shards(launched):
        key, given = ("shard", "zero3") if training.shard else ("accelerate_config", "a file that shards weights")
        raise ConfigError(
            f"training.{key}: expected training.shard=fsdp2 to share PPO's weights among processes, got {given}: "
            "other ways round the critic's value head to bfloat16"
        )
    if training.shard is not None and objective.settings.critic == "head":
        raise ConfigError(
            f"method.critic: expected full or model with training.shard={training.shard}, since sharded weights belong "
            "to one model (model gives the same values), got head"
        )
    if training.quantise is not None and objective.settings.critic == "full":
        raise ConfigError(
            "method.critic: expected model or head with training.quantise, since quantised weights have no gradient, "
            "got full"
        )
    if training.quantise == "int8":
        raise ConfigError(
            "training.quantise: expected nf4 or null with PPO, got int8, which rounds activations: the critic's errors "
            "and the ratios of probabilities would change with what shares a pass"
        )
    if launched.get("distributed_type") == "DEEPSPEED" and (
        objective.settings.popart is not None or objective.settings.reset_critic
    ):
        raise ConfigError(
            "training.accelerate_config: DeepSpeed's optimiser copies the value head, which method.popart and "
            "method.reset_critic change between steps; expected null and false, or another distributed_type, such as "
            "MULTI_GPU"
        )


def _given(file: Path) -> dict[str, Any]:
    """Read a file of `accelerate config`. If it is unreadable, return {} and let accelerate report that."""
    with contextlib.suppress(Exception):
        given: Any = OmegaConf.to_container(OmegaConf.load(file))
        return dict(given)
    return {}


def _has_fsdp1(given: Mapping[str, Any]) -> bool:
    """Return whether a configuration of accelerate has the first version of FSDP, its default."""
    settings = given.get("fsdp_config")
    version = settings.get("fsdp_version", 1) if isinstance(settings, dict) else 1
    return given.get("distributed_type") == "FSDP" and version == 1


def _shards(given: Mapping[str, Any]) -> bool:
    """Return whether a configuration of accelerate shards weights; False if it is unreadable."""
    with contextlib.suppress(Exception):
        deepspeed = given.get("deepspeed_config") or {}
        stage = deepspeed.get("zero_stage")
        if (more := deepspeed.get("deepspeed_config_file")) is not None:
            stage = msgspec.json.decode(Path(more).expanduser().read_bytes())["zero_optimization"]["stage"]
        return given.get("distributed_type") == "FSDP" or stage == 3
    return False


def require_trainable(model: ModelConfig, training: TrainingConfig, device: str) -> tuple[Any, Any]:
    """Check from its configuration and tokenizer that a model can be trained.

    Returns the tokenizer and the model without weights. Takes seconds, since it imports torch and transformers. Raises
    EngineError for a model that cannot be loaded or a missing device, ConfigError for an adapter that does not fit.
    """
    require_packages(training)
    from transformers import AutoTokenizer

    from evorun.models.transformers.engine import choose_device
    from evorun.training.weights import refuse_dropout, require_targets

    choose_device(device)
    folder = resolve(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        layers = load_skeleton(folder)
    except Exception as error:
        raise EngineError(f"model '{model.id}': transformers cannot load it: {first_line(error)}") from error
    require_chat_template(tokenizer, model)
    if training.weights == "lora":
        require_targets(layers, training.target_modules)
        refuse_dropout(layers, training)
    return tokenizer, layers


def require_tunable(model: ModelConfig, training: TrainingConfig, device: str) -> None:
    """Check that a model can be fine-tuned on chats, including the checks of `require_trainable`.

    Also raises TrainingError for a chat template that does not show where answers begin and end.
    """
    if training.backend == "tinker":
        tokenizer = load_tokenizer(model)
        tokenize_example(tokenizer, _CHAT, model, end_tokens(model, tokenizer))
        return
    tokenizer, layers = require_trainable(model, training, device)
    from transformers import GenerationConfig

    from evorun.models.transformers.batch_decoder import eos_tokens
    from evorun.training.weights import refuse_output_layer

    if training.weights == "lora":
        refuse_output_layer(layers, training.target_modules)
    folder = resolve(model)
    with contextlib.suppress(OSError):  # without this file, the model's configuration names the end tokens
        layers.generation_config = GenerationConfig.from_pretrained(folder)
    tokenize_example(tokenizer, _CHAT, model, eos_tokens(layers, tokenizer))

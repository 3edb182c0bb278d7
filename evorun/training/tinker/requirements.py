"""Refuses settings that a trainer on Tinker's API cannot follow, before the run incurs any cost."""

from evorun.errors import ConfigError
from evorun.models.config import ModelConfig
from evorun.training.config import TrainingConfig
from evorun.training.wire import Objective, PolicyGradient, ProximalPolicy

ALPHA = 32.0
"""Tinker's adapters are scaled by 32 / rank (tinker_cookbook/hyperparam_utils.py)."""
TARGETS = ({"all-linear"}, {"all-linear", "lm_head"})


def require_supported(training: TrainingConfig, model: ModelConfig) -> None:
    """Raise ConfigError for a key that a server cannot follow."""
    if model.adapter is not None or model.api:
        raise ConfigError(
            f"model={model.name}: expected one of the server's models, without model.adapter, with "
            "training.backend=tinker"
        )
    fixed: dict[str, tuple[object, object, str]] = {
        "weights": (training.weights, "lora", "since the server trains adapters"),
        "dropout": (training.dropout, 0.0, "since its adapters have none"),
        "alpha": (training.alpha, ALPHA, "the server's own; scale training.learning_rate instead"),
        "precision": (training.precision, "auto", "since the server decides it"),
        "gradient_checkpointing": (training.gradient_checkpointing, None, "since the server decides it"),
        "num_processes": (training.num_processes, None, "since nothing is trained here"),
        "devices": (training.devices, None, "since nothing is trained here"),
        "weight_transfer": (training.weight_transfer, "auto", "since the server keeps the weights"),
        "accelerate_config": (training.accelerate_config, None, "since nothing is trained here"),
    }
    for key, (given, expected, reason) in fixed.items():
        if given != expected:
            wanted = "null" if expected is None else f"{expected:g}" if isinstance(expected, float) else expected
            raise ConfigError(f"training.{key}: expected {wanted} with training.backend=tinker, {reason}, got {given}")
    if set(training.target_modules) not in TARGETS:
        raise ConfigError(
            "training.target_modules: expected [all-linear] or [all-linear, lm_head] with training.backend=tinker, got "
            f"[{', '.join(training.target_modules)}]"
        )


def require_objective(objective: Objective) -> None:
    """Raise ConfigError for an objective that Tinker's losses do not have."""
    if isinstance(objective, ProximalPolicy):
        raise ConfigError(
            "training.backend=tinker: expected policy gradients (method=grpo, cispo, rloo or espl) or method=sft, got "
            "PPO, whose critic the server does not have; use training.backend=trl"
        )
    if isinstance(objective, PolicyGradient) and objective.temperature != 1:
        raise ConfigError(
            "method.temperature: expected 1 with training.backend=tinker, whose losses take log-probabilities at "
            f"temperature 1, got {objective.temperature:g}"
        )

"""Chooses how all weights of a policy reach vLLM after an update (`training.weight_transfer`)."""

from collections.abc import Sequence

from evorun.errors import ConfigError
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.devices import visible_gpus
from evorun.models.vllm.startup import is_cpu_build
from evorun.training.config import TrainingConfig
from evorun.training.layout import lay_out


def require_transfer(training: TrainingConfig, model: ModelConfig, engine: EngineConfig) -> None:
    """Raise ConfigError for a transfer from memory that no machine could make."""
    if (reason := _find_obstacle(training, model, engine)) is not None:
        _refuse(training, reason)


def choose_transfer(
    training: TrainingConfig, model: ModelConfig, engine: EngineConfig, devices: Sequence[int] | None
) -> str:
    """Return ipc, nccl or folder. devices: the trainer's GPUs; None: the first ones.

    Raises ConfigError where the user has set what cannot be.
    """
    reason = _find_obstacle(training, model, engine) or _find_obstacle_here(training)
    use = engine.gpu_use
    if training.weight_transfer == "folder" or reason is not None or use is None:
        _refuse(training, reason or "the engine uses no GPU")
        return "folder"
    own, theirs = list(devices or range(training.processes)), set(use.devices)
    listed = f"vLLM is on GPU {_list(theirs)}, and the trainer on {_list(own)}"
    possible = {
        "ipc": None if theirs <= {*own} else f"{listed}: each of vLLM's GPUs must be one of the trainer's",
        "nccl": None if own[0] not in theirs else f"{listed}: its first must not be one of vLLM's",
    }
    if training.weight_transfer == "auto":
        return next((transfer for transfer, against in possible.items() if against is None), "folder")
    if (against := possible[training.weight_transfer]) is not None:
        _refuse(training, against)
    return training.weight_transfer


def _find_obstacle(training: TrainingConfig, model: ModelConfig, engine: EngineConfig) -> str | None:
    if engine.is_trainer or not engine.takes_weights:
        return f"only vLLM in the run's own process receives weights, not engine={engine.name}"
    if training.weights != "full":
        return "vLLM reads adapters from a folder alone (training.sync_folder=/dev/shm keeps it in main memory)"
    if model.quantization is not None:
        return f"vLLM's weights are quantised ({model.quantization}), and the trainer's are not"
    if training.accelerate_config is not None:
        return "training.accelerate_config decides which GPUs the trainer has"
    return None


def _find_obstacle_here(training: TrainingConfig) -> str | None:
    if is_cpu_build():
        return "vLLM's CPU build has no transfers"
    if not visible_gpus():
        return "there is no GPU"
    if len(lay_out(training)) > 1:
        return "the trainer is on several nodes"
    return None


def _refuse(training: TrainingConfig, reason: str) -> None:
    if training.weight_transfer not in ("auto", "folder"):
        raise ConfigError(
            f"training.weight_transfer: expected auto or folder, since {reason}; got {training.weight_transfer}"
        )


def _list(devices: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(devices)))

"""Converts evorun's training settings to arguments of transformers and TRL."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from evorun.errors import ConfigError
from evorun.training.config import TrainingConfig
from evorun.training.wire import Job

PROCESS_TIMEOUT_S = 7 * 24 * 3600
"""Seconds that a process may wait for the first process: the run may take this long to score a batch."""


def shared_arguments(job: Job) -> dict[str, Any]:
    """Return the arguments that every trainer takes (`transformers.TrainingArguments`)."""
    from evorun.training.weights import mixed_precision, on_gpu

    training = job.training
    checkpointing = training.gradient_checkpointing
    return {
        "output_dir": job.folder,
        "learning_rate": training.learning_rate,
        "adam_beta1": training.beta1,
        "adam_beta2": training.beta2,
        "adam_epsilon": training.epsilon,
        "weight_decay": training.weight_decay,
        "lr_scheduler_type": training.schedule,
        "warmup_steps": training.warmup_steps,
        "max_grad_norm": training.max_grad_norm or 0.0,  # 0: gradients are left as they are
        "bf16": mixed_precision(job),
        "gradient_checkpointing": on_gpu(job) if checkpointing is None else checkpointing,
        "use_cpu": not on_gpu(job),
        "seed": job.seed,
        "logging_steps": 1,
        "save_strategy": "no",  # checkpoints are written when the run asks for them
        "report_to": [],
        "disable_tqdm": True,
        "ddp_timeout": PROCESS_TIMEOUT_S,
        # Every forward pass uses the adapter, so there are no unused parameters to find.
        "ddp_find_unused_parameters": False,
    }


@contextlib.contextmanager
def keep_settings(trainer: Any) -> Iterator[None]:
    """Keep the optimiser's settings and the schedule of a trainer while it loads a checkpoint.

    A checkpoint holds those of its run as well as the state. A fork may have others.
    """
    if trainer.is_deepspeed_enabled:  # loads all of them together with the model
        yield
        return
    groups = trainer.optimizer.param_groups
    own = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    yield
    schedule = getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)
    for group, settings in zip(trainer.optimizer.param_groups, own, strict=True):
        group.update(settings)
    schedule.base_lrs = [settings["initial_lr"] for settings in own]
    schedule._last_lr = [
        rate * factor(schedule.last_epoch) for rate, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
    ]
    for group, rate in zip(trainer.optimizer.param_groups, schedule._last_lr, strict=True):
        group["lr"] = rate


def require_processes(training: TrainingConfig) -> None:
    """Raise ConfigError if the launcher has started a different number of processes than configured."""
    started = count_processes()
    if started != training.processes:
        raise ConfigError(
            f"training.num_processes: expected {training.processes} processes, accelerate launch has started "
            f"{started}; look at {training.accelerate_config or 'its configuration'}"
        )


def meet(job: Job) -> None:
    """Join the process group of all processes, and wait until each of them has; do nothing if there is only one.

    Left to transformers, the group would form when the model is loaded, and on a CPU with a timeout of 30 minutes.
    """
    if count_processes() == 1:
        return
    from accelerate import PartialState

    from evorun.training.weights import on_gpu

    state = PartialState(cpu=not on_gpu(job), timeout=timedelta(seconds=PROCESS_TIMEOUT_S))
    state.wait_for_everyone()


def require_several(training: TrainingConfig) -> None:
    """Raise ConfigError for sharded weights in one process."""
    if training.shard is not None and training.processes == 1:
        raise ConfigError(
            f"training.shard: expected several processes to share the weights with {training.shard}, got one; set "
            "training.num_processes"
        )


def count_processes() -> int:
    """Return the number of processes that train together, as set by the launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_share(batch: int, processes: int) -> None:
    """Raise ConfigError if the processes cannot share a batch of conversations equally."""
    if batch % processes:
        raise ConfigError(f"method.batch: expected a multiple of training.num_processes ({processes}), got {batch}")

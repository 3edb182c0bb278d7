"""Converts evorun's training settings to arguments of transformers and TRL."""

import os
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


def require_processes(training: TrainingConfig) -> None:
    """Raise ConfigError if the launcher has started a different number of processes than configured."""
    started = count_processes()
    if started != training.num_processes:
        raise ConfigError(
            f"training.num_processes: expected {training.num_processes} processes, accelerate launch has started "
            f"{started}; look at {training.accelerate_config or 'its configuration'}"
        )


def count_processes() -> int:
    """Return the number of processes that train together, as set by the launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_share(batch: int, processes: int) -> None:
    """Raise ConfigError if the processes cannot share a batch of conversations equally."""
    if batch % processes:
        raise ConfigError(f"method.batch: expected a multiple of training.num_processes ({processes}), got {batch}")

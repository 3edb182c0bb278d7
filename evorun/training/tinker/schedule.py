"""The learning rate of each optimiser step, which Tinker's API takes with the step."""

import math

from evorun.training.config import TrainingConfig


def learning_rate(training: TrainingConfig, step: int, steps: int, steps_per_batch: int) -> float:
    """Return the learning rate of an optimiser step, as transformers' schedules have it.

    step: its number, from 0. steps: of the whole run. steps_per_batch: of the optimiser.
    """
    if training.schedule_by == "batch":
        step, steps = step // steps_per_batch, steps // steps_per_batch
    warmup = training.warmup_steps
    if training.schedule != "constant" and step < warmup:
        return training.learning_rate * step / max(1, warmup)
    progress = (step - warmup) / max(1, steps - warmup)
    factor = {
        "constant": 1.0,
        "constant_with_warmup": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[training.schedule]
    return training.learning_rate * max(0.0, factor)

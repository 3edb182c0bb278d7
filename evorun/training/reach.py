"""Bounds the change in a layer's outputs that an adapter can cause by the end of training."""

import math

from evorun.training.config import TrainingConfig
from evorun.training.wire import Objective, PolicyGradient, ProximalPolicy

MIN_REACH = 0.01
"""A smaller change of outputs, in units of the inputs, leaves a model almost unchanged. For one memorised text, a reach
of 0.0005 changes the loss by 0.04, and one of 0.006 by 0.4 (scripts/measure_adapter_rates.py). `ours`."""

WIDTH = 4096
"""Assumed number of inputs of a layer: that of a model with 8 billion parameters. `ours`."""

_FROM_START = math.sqrt(2 / (3 * math.pi))  # mean size of a normal number of variance 1/3
_FROM_CHANGE = math.sqrt(2 / math.pi)  # the same of variance 1


def reach(training: TrainingConfig, steps: int, inputs: int = WIDTH) -> float:
    """Return about the maximum change of an adapted layer's output in this many steps of the optimiser.

    The layer's inputs have mean square 1, as after normalisation. An adapter adds (alpha / rank) B A x to its output.

    - B starts at 0, and Adam changes a weight by at most about the learning rate per step. No entry of B exceeds S, the
      sum of the learning rates.
    - A starts uniform within +-1/sqrt(n) for n inputs (PEFT), with variance 1/(3n). Each of the `rank` entries of A x
      is about normal with variance 1/3, hence of mean size 0.46.
    - Each entry of A changes by at most S, and A x by 0.8 n S.

    Together, an output changes by at most (alpha / rank) * rank * S * (0.46 + 0.8 n S): the rank does not matter. It
    reaches this bound if all gradients agree; noise reduces it. (Full training of an output's n weights changes it by
    0.8 n S.)
    """
    return compute_reach(training.alpha, training.learning_rate * _mean_factor(training) * steps, inputs)


def compute_reach(alpha: float, total: float, inputs: int = WIDTH) -> float:
    """Return the same as `reach`, from the sum of the learning rates over the steps."""
    return alpha * total * (_FROM_START + _FROM_CHANGE * inputs * total)


def describe_short_reach(training: TrainingConfig, objective: Objective) -> str | None:
    """Return a line of warning if an adapter can hardly change the policy by the last step, else None.

    Always None for fine-tuning, whose number of steps depends on the data.
    """
    if training.weights != "lora" or not isinstance(objective, ProximalPolicy | PolicyGradient):
        return None
    epochs = objective.settings.epochs if isinstance(objective, ProximalPolicy) else 1
    steps = objective.steps * epochs * objective.settings.minibatches
    own = reach(training, steps)
    if own >= MIN_REACH:
        return None
    # The sum of learning rates at which the bound of `reach` equals MIN_REACH.
    slope = 2 * _FROM_CHANGE * WIDTH
    total = (math.sqrt(_FROM_START**2 + 2 * slope * MIN_REACH / training.alpha) - _FROM_START) / slope
    return (
        f"training.learning_rate={training.learning_rate:g}: in {steps} steps of the optimiser, with training.alpha="
        f"{training.alpha:g}, the adapter changes a layer's outputs by at most {own:.1g} of its inputs, so the policy "
        f"hardly changes; {total / _mean_factor(training) / steps:.2g} changes them by {MIN_REACH:g} (usual rates for "
        "adapters: 3e-5 to 1e-4)"
    )


def _mean_factor(training: TrainingConfig) -> float:
    """Return the mean of the schedule, ignoring warm-up, which reduces it further."""
    return 0.5 if training.schedule in ("linear", "cosine") else 1.0

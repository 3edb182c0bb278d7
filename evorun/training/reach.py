"""How far an adapter can move a layer's outputs by the end of a training."""

import math

from evorun.training.config import TrainingConfig
from evorun.training.wire import Objective, PolicyGradient, ProximalPolicy

LEAST_REACH = 0.01
"""Outputs that move by less, in inputs' own units, leave a model nearly what it was. On one text, learned by heart, a
reach of 0.0005 changes the loss by 0.04, and one of 0.006 by 0.4 (scripts/measure_adapter_rates.py). `ours`."""

WIDTH = 4096
"""Inputs of a layer that are reckoned with: those of a model of 8 billion parameters. `ours`."""

_FROM_START = math.sqrt(2 / (3 * math.pi))  # mean size of a normal number of variance 1/3
_FROM_CHANGE = math.sqrt(2 / math.pi)  # the same of variance 1


def reach(training: TrainingConfig, steps: int, inputs: int = WIDTH) -> float:
    """Return the most that an output of an adapted layer moves in so many steps of the optimiser, about.

    The layer has inputs of mean square 1, as normalisation gives them. An adapter adds (alpha / rank) B A x to its
    output. Adam moves a weight by at most about the learning rate a step, and B starts at 0: no entry of B exceeds S,
    the sum of the learning rates. A starts uniform within +-1/sqrt(n) for n inputs (PEFT), of variance 1/(3n), so that
    each of the `rank` entries of A x is about normal with variance 1/3, of mean size 0.46; then A moves by S an entry,
    and A x by 0.8 n S. Together an output moves by at most (alpha / rank) * rank * S * (0.46 + 0.8 n S): the rank does
    not matter. It comes so far where all gradients agree; noise makes it less. (All n weights of an output, trained
    themselves, move it by 0.8 n S.)
    """
    return reach_of(training.alpha, training.learning_rate * _mean_factor(training) * steps, inputs)


def reach_of(alpha: float, total: float, inputs: int = WIDTH) -> float:
    """Return the same for a sum of learning rates over the steps."""
    return alpha * total * (_FROM_START + _FROM_CHANGE * inputs * total)


def cannot_move(training: TrainingConfig, objective: Objective) -> str | None:
    """Return a line where an adapter can hardly change the policy by the last step; None where it can.

    None, too, where the number of steps is that of the data (a fine-tuning).
    """
    if training.weights != "lora" or not isinstance(objective, ProximalPolicy | PolicyGradient):
        return None
    epochs = objective.settings.epochs if isinstance(objective, ProximalPolicy) else 1
    steps = objective.steps * epochs * objective.settings.minibatches
    own = reach(training, steps)
    if own >= LEAST_REACH:
        return None
    # The sum of learning rates at which the bound of `reach` is LEAST_REACH.
    slope = 2 * _FROM_CHANGE * WIDTH
    total = (math.sqrt(_FROM_START**2 + 2 * slope * LEAST_REACH / training.alpha) - _FROM_START) / slope
    return (
        f"training.learning_rate={training.learning_rate:g}: in {steps} steps of the optimiser, with training.alpha="
        f"{training.alpha:g}, the adapter moves a layer's outputs by {own:.1g} of its inputs at most, and the policy "
        f"stays nearly what it is; {total / _mean_factor(training) / steps:.2g} moves them by {LEAST_REACH:g} (usual "
        "rates of adapters: 3e-5 to 1e-4)"
    )


def _mean_factor(training: TrainingConfig) -> float:
    """Return the mean of the schedule, of which a warm-up takes some more away."""
    return 0.5 if training.schedule in ("linear", "cosine") else 1.0

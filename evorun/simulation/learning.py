"""Learning in the simulated world: the effect of updates on the chance of a right answer and a writer's weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evorun.simulation.settings import World
from evorun.simulation.writing import Weights


class Learned(NamedTuple):
    """The state of a simulated policy that learns."""

    gain: float
    """Gain in `skill`."""
    weights: Weights
    """Of a writer of texts without a right answer."""

    @classmethod
    def initial(cls, world: World) -> "Learned":
        """Return the policy before its first update."""
        return cls(0.0, Weights.initial(world))

    def updated(self, world: World, texts: Sequence[str], advantages: Sequence[float]) -> "Learned":
        """Return the policy after an update on a batch of completions.

        A policy whose only weight is its probability of a right answer has the gradient mean(advantage x right). With
        rewards of 0 and 1, this is the mean square of the advantages. It is 1/4 if half of a large group is right, and
        0 if all rewards are equal. The remaining gain shrinks by `training_speed` times four times that, or by less if
        there are few completions (`gradient_noise`). A writer's weights take a step along the gradient at the texts.
        """
        counted = sum(map(bool, advantages))
        exact = counted / (counted + world.gradient_noise) if counted else 0.0
        share = world.training_speed * min(1.0, 4 * variance(advantages)) * exact
        return Learned(
            self.gain + share * (world.training_gain - self.gain),
            self.weights.updated(list(texts), list(advantages), world.policy_learning_rate),
        )

    def imitated(self, world: World, lead: float, conversations: int) -> "Learned":
        """Return the policy after a step of fine-tuning.

        lead: by how much the skill that the conversations show exceeds the untrained one; below 0 if it is less. The
        policy covers `training_speed` of its own distance to the skill shown, or less of it if there are few
        conversations (`gradient_noise`).
        """
        exact = conversations / (conversations + world.gradient_noise) if conversations else 0.0
        return self._replace(gain=self.gain + world.training_speed * exact * (lead - self.gain))


def variance(advantages: Sequence[float]) -> float:
    """Return the variance of a batch's advantages; 0 for an empty batch."""
    return float(np.var(advantages)) if advantages else 0.0

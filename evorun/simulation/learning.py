"""Learning in the simulated world: the effect of updates on the chance of a right answer and a writer's weights."""

import math
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

    def updated(self, world: World, texts: Sequence[str], advantages: Sequence[float], gradient: float) -> "Learned":
        """Return the policy after an update on a batch of completions.

        gradient: of `skill_gradient`. The distance to `training_gain`, or to its opposite where the gradient is below
        0, shrinks by `training_speed` times four times its size, or by less if there are few completions
        (`gradient_noise`). A writer's weights take a step along the gradient at the texts.
        """
        counted = sum(map(bool, advantages))
        exact = counted / (counted + world.gradient_noise) if counted else 0.0
        share = world.training_speed * min(1.0, 4 * abs(gradient)) * exact
        return Learned(
            self.gain + share * (math.copysign(1, gradient) * world.training_gain - self.gain),
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


def skill_gradient(advantages: Sequence[float], rewards: Sequence[float], scores: Sequence[float] | None) -> float:
    """Return the gradient of a policy whose only weight is its skill, for a batch of completions.

    It is the covariance of advantages and scores: 1/4 if the scores are the rewards and half of a large group has 1
    and half has 0; 0 if the rewards say nothing of the scores; and below 0 if worse completions earn more. As with
    Adam, the step does not depend on the rewards' scale: they count in the scores' standard deviation.

    scores: of the task, in the same order; None where nobody knows them, so that the advantages stand for them.
    """
    if scores is None:
        return float(np.var(advantages)) if advantages else 0.0
    spread = np.std(rewards)
    if not spread:
        return 0.0
    return float(np.cov(advantages, scores, bias=True)[0, 1] * np.std(scores) / spread)

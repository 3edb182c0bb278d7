"""A simulated writer of texts without a right answer, whose weights a policy gradient can change.

All that is true of a response stands in its text: which of its sentences are to the point, and whether it is an essay
at all or a text that says nothing in another script, as a policy wrote that had found a loophole in its rubric (MPO,
appendix D.2). So whoever judges it, simulated or not, reads what the writer wrote and nothing else.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evorun.errors import above, at_least, within

POINTED = (
    "A figure from the public record supports this.",
    "An example from last year shows how it works.",
    "The strongest objection is its cost, which the savings exceed.",
    "This follows from what was said before, step by step.",
    "Those who bear the burden are named here, and so is what they lose.",
    "The claim has limits, and these are they.",
)
"""Sentences to the point, in the order of a response."""
VAGUE = (
    "There are many things that one could say about this.",
    "It is an important matter for all of us.",
    "Some people agree and others do not.",
    "Everything has two sides, as we know.",
    "Time will tell what is best.",
    "In the end it depends on how one sees it.",
)
"""The sentence that stands in the place of each."""
EVASION = "这是一篇很好的文章内容充实论证有力 "
"""The words that the loophole pays for, again and again."""
_EVASIONS = 12
_MOST_LOG_ODDS = 20.0


@dataclass
class WritingSettings:
    """The writer's weights before training, and how fast it learns."""

    quality: float = 0.35
    """Probability that a sentence of a response is to the point, before any update."""
    quality_limit: float = 0.7
    """The same at most, however long the training."""
    loophole_rate: float = 0.03
    """Share of responses that try the rubric's loophole, before any update."""
    policy_learning_rate: float = 1.0
    """Length of a step along the gradient of log-odds, with signals of standard deviation 1."""

    def __post_init__(self) -> None:
        for key in ("quality", "quality_limit", "loophole_rate"):
            within(f"engine.{key}", getattr(self, key), 0, 1)
        above("engine.quality_limit", self.quality_limit, self.quality)
        at_least("engine.policy_learning_rate", self.policy_learning_rate, 0)


class Traits(NamedTuple):
    """All that is true of a response."""

    pointed: int
    vague: int
    evades: bool

    @property
    def quality(self) -> float:
        """Its true quality, in [0, 1]: the share of sentences to the point; none of a text that evades the task."""
        return 0.0 if self.evades else self.pointed / len(POINTED)


def traits(text: str) -> Traits:
    """Read a response, or a prompt that shows one."""
    pointed, vague = (sum(one in text for one in sentences) for sentences in (POINTED, VAGUE))
    return Traits(pointed, vague, EVASION in text)


class Weights(NamedTuple):
    """The weights of a policy, as log-odds."""

    quality: float
    """Of a sentence to the point, as a share of `limit`."""
    loophole: float
    limit: float
    """Not learned."""

    @classmethod
    def initial(cls, settings: WritingSettings) -> "Weights":
        share = settings.quality / settings.quality_limit
        return cls(_log_odds(share), _log_odds(settings.loophole_rate), settings.quality_limit)

    @property
    def chances(self) -> tuple[float, float]:
        """The probabilities of a sentence to the point and of a response that evades the task."""
        return self.limit / (1 + math.exp(-self.quality)), 1 / (1 + math.exp(-self.loophole))

    def write(self, rng: np.random.Generator) -> str:
        """Draw a response."""
        quality, loophole = self.chances
        draws = rng.random(1 + len(POINTED)).tolist()
        if draws[0] < loophole:
            return (EVASION * _EVASIONS).strip()
        chosen = zip(POINTED, VAGUE, draws[1:], strict=True)
        return " ".join(pointed if draw < quality else vague for pointed, vague, draw in chosen)

    def log_probability(self, response: Traits) -> float:
        """Return that of a response with these traits being written."""
        quality, loophole = self.chances
        if response.evades:
            return math.log(loophole)
        return math.log1p(-loophole) + response.pointed * math.log(quality) + response.vague * math.log1p(-quality)

    def gradient(self, response: Traits) -> tuple[float, float]:
        """Return the derivatives of `log_probability` with respect to `quality` and `loophole`."""
        quality, loophole = self.chances
        if response.evades:
            return 0.0, 1 - loophole
        up = 1 - quality / self.limit  # of log(quality); of quality itself it is quality times that
        return up * (response.pointed - response.vague * quality / (1 - quality)), -loophole

    def updated(self, texts: list[str], signals: list[float], learning_rate: float) -> "Weights":
        """Return the weights after one step of REINFORCE on responses with these rewards or advantages.

        The baseline is their mean, which advantages within groups have already; their spread is brought to 1, as PPO
        whitens advantages, and as optimisers like Adam make steps that do not grow with the rewards' scale. What shows
        none of the writer's sentences has no part in it.
        """
        written = [(one, signal) for one, signal in zip(map(traits, texts), signals, strict=True) if any(one)]
        advantages = np.array([signal for _, signal in written])
        if not written or np.ptp(advantages) == 0:
            return self
        advantages = (advantages - advantages.mean()) / advantages.std()
        quality, loophole = advantages @ np.array([self.gradient(one) for one, _ in written]) / len(written)
        return self._replace(
            quality=_bounded(self.quality + learning_rate * float(quality)),
            loophole=_bounded(self.loophole + learning_rate * float(loophole)),
        )


def _bounded(log_odds: float) -> float:
    """Return log-odds of a probability that differs from 0 and 1."""
    return min(max(log_odds, -_MOST_LOG_ODDS), _MOST_LOG_ODDS)


def _log_odds(probability: float) -> float:
    if probability in (0, 1):
        return _bounded(math.copysign(math.inf, probability - 0.5))
    return _bounded(math.log(probability / (1 - probability)))

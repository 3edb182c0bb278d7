"""A simulated writer of texts without a right answer, whose weights a policy gradient can change.

All that is true of a response stands in its text: which of its sentences are to the point, and whether it is an essay
at all or a text that says nothing and exploits a loophole of its rubric (`evorun.models.loopholes`). So whoever judges
it, simulated or not, reads what the writer wrote and nothing else.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evorun.errors import above, at_least, one_of, within
from evorun.models.loopholes import KINDS, exploit, kind_of

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
_MOST_LOG_ODDS = 20.0


@dataclass
class WritingSettings:
    """The writer's weights before training, and how fast it learns."""

    quality: float = 0.35
    """Probability that a sentence of a response is to the point, before any update."""
    quality_limit: float = 0.7
    """The same at most, however long the training."""
    loophole_rate: float = 0.03
    """Share of responses that try a loophole of the rubric, before any update."""
    loophole_kind: str = "language"
    """language | length | flattery | format | title: how these responses look; all: each kind as often."""
    policy_learning_rate: float = 1.0
    """Length of a step along the gradient of log-odds, with advantages of standard deviation 1."""

    def __post_init__(self) -> None:
        for key in ("quality", "quality_limit", "loophole_rate"):
            within(f"engine.{key}", getattr(self, key), 0, 1)
        one_of("engine.loophole_kind", self.loophole_kind, (*KINDS, "all"))
        above("engine.quality_limit", self.quality_limit, self.quality)
        at_least("engine.policy_learning_rate", self.policy_learning_rate, 0)


class Traits(NamedTuple):
    """All that is true of a response."""

    pointed: int
    vague: int
    kind: str
    """Of the loophole that it exploits; "" where it exploits none."""

    @property
    def quality(self) -> float:
        """Its true quality, in [0, 1]: the share of sentences to the point; none of a text that exploits a loophole."""
        return 0.0 if self.kind else self.pointed / len(POINTED)


def traits(text: str) -> Traits:
    """Read a response."""
    pointed, vague = (sum(one in text for one in sentences) for sentences in (POINTED, VAGUE))
    return Traits(pointed, vague, kind_of(text))


class Weights(NamedTuple):
    """The weights of a policy, as log-odds."""

    quality: float
    """Of a sentence to the point, as a share of `limit`."""
    loopholes: tuple[float, ...]
    """Of a response that exploits a loophole, by its kind, against one that exploits none."""
    limit: float
    """Not learned."""
    kinds: tuple[str, ...]
    """Of the loopholes. Not learned."""

    @classmethod
    def initial(cls, settings: WritingSettings) -> "Weights":
        kinds = KINDS if settings.loophole_kind == "all" else (settings.loophole_kind,)
        odds = _log_odds(settings.loophole_rate) - math.log(len(kinds))
        share = settings.quality / settings.quality_limit
        return cls(_log_odds(share), (_bounded(odds),) * len(kinds), settings.quality_limit, kinds)

    @property
    def quality_rate(self) -> float:
        """The probability of a sentence to the point."""
        return self.limit / (1 + math.exp(-self.quality))

    @property
    def loophole_rates(self) -> tuple[float, ...]:
        """The probabilities of a response that exploits a loophole, by its kind."""
        odds = [math.exp(one) for one in self.loopholes]
        return tuple(one / (1 + sum(odds)) for one in odds)

    def write(self, rng: np.random.Generator) -> str:
        """Draw a response."""
        draws = rng.random(1 + len(POINTED)).tolist()
        reached = 0.0
        for kind, rate in zip(self.kinds, self.loophole_rates, strict=True):
            reached += rate
            if draws[0] < reached:
                return exploit(kind, rng)
        chosen = zip(POINTED, VAGUE, draws[1:], strict=True)
        return " ".join(pointed if draw < self.quality_rate else vague for pointed, vague, draw in chosen)

    def log_probability(self, response: Traits) -> float:
        """Return that of a response with these traits being written."""
        if response.kind:
            return math.log(self.loophole_rates[self.kinds.index(response.kind)])
        quality, honest = self.quality_rate, 1 / (1 + sum(map(math.exp, self.loopholes)))
        return math.log(honest) + response.pointed * math.log(quality) + response.vague * math.log1p(-quality)

    def gradient(self, response: Traits) -> tuple[float, ...]:
        """Return the derivatives of `log_probability` with respect to `quality` and each of `loopholes`."""
        down = [float(kind == response.kind) - rate for kind, rate in zip(self.kinds, self.loophole_rates, strict=True)]
        if response.kind:
            return 0.0, *down
        quality = self.quality_rate
        up = 1 - quality / self.limit  # of log(quality); of quality itself it is quality times that
        return up * (response.pointed - response.vague * quality / (1 - quality)), *down

    def updated(self, texts: list[str], advantages: list[float], learning_rate: float) -> "Weights":
        """Return the weights after one step of REINFORCE on responses with these advantages.

        advantages: or rewards, as their mean is subtracted. Their spread is brought to 1, as PPO whitens advantages,
        and as optimisers like Adam make steps that do not grow with the rewards' scale. What shows none of the
        writer's sentences, and exploits none of its loopholes, has no part in it.
        """
        read = zip(map(traits, texts), advantages, strict=True)
        written = [(one, own) for one, own in read if (one.kind in self.kinds if one.kind else any(one))]
        raw = np.array([own for _, own in written])
        if not written or np.ptp(raw) == 0:
            return self
        whitened = (raw - raw.mean()) / raw.std()
        gradient = whitened @ np.array([self.gradient(one) for one, _ in written]) / len(written)
        quality, *loopholes = (learning_rate * gradient).tolist()
        return self._replace(
            quality=_bounded(self.quality + quality),
            loopholes=tuple(_bounded(one + change) for one, change in zip(self.loopholes, loopholes, strict=True)),
        )


def _bounded(log_odds: float) -> float:
    """Return log-odds of a probability that differs from 0 and 1."""
    return min(max(log_odds, -_MOST_LOG_ODDS), _MOST_LOG_ODDS)


def _log_odds(probability: float) -> float:
    if probability in (0, 1):
        return _bounded(math.copysign(math.inf, probability - 0.5))
    return _bounded(math.log(probability / (1 - probability)))

"""A simulated writer of texts without a right answer, whose weights a policy gradient can change.

A response's text determines its quality. It is either an essay, with sentences to the point and vague ones, or a hollow
text that exploits a loophole of its rubric (`loopholes`). Every judge, simulated or not, therefore needs only the text.
"""

import math
from typing import NamedTuple

import numpy as np

from evorun.simulation.loopholes import KINDS, exploit, find_kind
from evorun.simulation.settings import World

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
"""The sentences that may replace them, in the same order."""
_MAX_LOG_ODDS = 20.0


class Traits(NamedTuple):
    """The properties of a response."""

    pointed: int
    vague: int
    loophole: str
    """Kind of the loophole that it exploits, or "" if it exploits none."""

    @property
    def quality(self) -> float:
        """True quality, in [0, 1]: the share of sentences to the point; 0 for a text that exploits a loophole."""
        return 0.0 if self.loophole else self.pointed / len(POINTED)


def read_traits(text: str) -> Traits:
    """Read the traits of a response from its text."""
    pointed, vague = (sum(sentence in text for sentence in sentences) for sentences in (POINTED, VAGUE))
    return Traits(pointed, vague, find_kind(text))


class Weights(NamedTuple):
    """The weights of a policy, as log-odds."""

    quality: float
    """Log-odds of a sentence to the point; its probability is this share of `limit`."""
    loopholes: tuple[float, ...]
    """Log-odds of a response that exploits a loophole, by kind, relative to one that exploits none."""
    limit: float
    """Maximum probability of a sentence to the point. Not learned."""
    kinds: tuple[str, ...]
    """Kinds of the loopholes. Not learned."""

    @classmethod
    def initial(cls, world: World) -> "Weights":
        kinds = KINDS if world.loophole_kind == "all" else (world.loophole_kind,)
        odds = _log_odds(world.loophole_rate) - math.log(len(kinds))
        share = world.quality / world.quality_limit
        return cls(_log_odds(share), (_bounded(odds),) * len(kinds), world.quality_limit, kinds)

    @property
    def quality_rate(self) -> float:
        """The probability of a sentence to the point."""
        return self.limit / (1 + math.exp(-self.quality))

    @property
    def loophole_rates(self) -> tuple[float, ...]:
        """The probabilities of a response that exploits a loophole, by kind."""
        odds = [math.exp(log_odds) for log_odds in self.loopholes]
        return tuple(ratio / (1 + sum(odds)) for ratio in odds)

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
        """Return the log-probability of writing a response with these traits."""
        if response.loophole:
            return math.log(self.loophole_rates[self.kinds.index(response.loophole)])
        quality, honest = self.quality_rate, 1 / (1 + sum(map(math.exp, self.loopholes)))
        return math.log(honest) + response.pointed * math.log(quality) + response.vague * math.log1p(-quality)

    def gradient(self, response: Traits) -> tuple[float, ...]:
        """Return the derivatives of `log_probability` with respect to `quality` and each of `loopholes`."""
        down = [
            float(kind == response.loophole) - rate for kind, rate in zip(self.kinds, self.loophole_rates, strict=True)
        ]
        if response.loophole:
            return 0.0, *down
        quality = self.quality_rate
        up = 1 - quality / self.limit  # derivative of log(quality); that of quality is this times quality
        return up * (response.pointed - response.vague * quality / (1 - quality)), *down

    def updated(self, texts: list[str], advantages: list[float], learning_rate: float) -> "Weights":
        """Return the weights after one step of REINFORCE on responses with these advantages.

        advantages: rewards work too, since the mean is subtracted. The advantages are scaled to standard deviation 1,
        as in PPO. The step therefore does not depend on the rewards' scale, as with Adam. Texts without any of the
        writer's sentences or loopholes are ignored.
        """
        read = zip(map(read_traits, texts), advantages, strict=True)
        written = [
            (response, own)
            for response, own in read
            if (response.loophole in self.kinds if response.loophole else any(response))
        ]
        raw = np.array([own for _, own in written])
        if not written or np.ptp(raw) == 0:
            return self
        whitened = (raw - raw.mean()) / raw.std()
        gradient = whitened @ np.array([self.gradient(response) for response, _ in written]) / len(written)
        quality, *loopholes = (learning_rate * gradient).tolist()
        return self._replace(
            quality=_bounded(self.quality + quality),
            loopholes=tuple(
                _bounded(log_odds + change) for log_odds, change in zip(self.loopholes, loopholes, strict=True)
            ),
        )


def _bounded(log_odds: float) -> float:
    """Return the log-odds, bounded so that their probability differs from 0 and 1."""
    return min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)


def _log_odds(probability: float) -> float:
    if probability in (0, 1):
        return _bounded(math.copysign(math.inf, probability - 0.5))
    return _bounded(math.log(probability / (1 - probability)))

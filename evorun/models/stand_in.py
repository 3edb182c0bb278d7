"""Stand-ins: what speaks in a model's place in simulated runs, and how well."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evorun.models.base import Request
from evorun.validation import at_least, within


@dataclass
class Skill:
    """Parameters of a stand-in; all defaults are ours, of the order that a small instruction-tuned model shows."""

    skill: float = 0.4
    """Probability of a right answer from scratch."""
    improvement: float = 0.15
    """Added to `skill` when all parents are right; in proportion to their share when only some are."""
    judge_skill: float = 0.75
    """Probability of preferring the right one of a right and a wrong response, before position bias."""
    position_bias: float = 0.1
    """Added to the probability of preferring the response that is shown first."""
    tie_rate: float = 0.3
    """Probability of calling a tie between two responses that are both right or both wrong."""
    malformed: float = 0.02
    """Share of completions that cannot be parsed."""
    mean_tokens: int = 120
    """Mean length of a completion's reasoning, in words of filler text."""

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        for key in ("skill", "improvement", "judge_skill", "tie_rate", "malformed"):
            within(f"engine.{key}", getattr(self, key), 0, 1)
        within("engine.position_bias", self.position_bias, -1, 1)
        at_least("engine.mean_tokens", self.mean_tokens, 1)


DEFAULT_SKILL = Skill()


class StandIn(Protocol):
    """What a task lets speak in a model's place: it knows the answers and a skill, not weights."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Produce a completion text for a request of this task, guided by `request.hints`."""
        ...

    def with_skill(self, skill: Skill) -> "StandIn":
        """Return a stand-in for the same problems that plays as well as `skill` says."""
        ...

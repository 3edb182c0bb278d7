"""A simulated policy's chance of a right answer, and a simulated judge's verdicts."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

import numpy as np

from evorun.models.base import Request
from evorun.simulation.principles import find_principles, merit_when_trained
from evorun.simulation.settings import World


class Skill(World):
    """A policy and a judge with the parameters of a world."""

    def chance(self, problem: str, shown: Sequence[float], instruction: str = "") -> float:
        """Return the probability of a right answer to the problem with this id.

        shown: the quality of each response in view, from 0 (wrong) to 1 (right). instruction: the system prompt;
        empty for the task's own.
        """
        share = sum(shown) / len(shown) if shown else 0.0
        parents = self.improvement * share - self.misleading * (1 - share) if shown else 0.0
        # A system prompt's merit is in [-1, 1): arbitrary, but always the same for the same text.
        merit = 2 * _share(instruction) - 1 if instruction else 0.0
        return self.own_chance(problem) + parents + self.instruction_gain * merit

    def own_chance(self, problem: str) -> float:
        """Return the problem's probability of a right answer from scratch."""
        given = self.skills.get(problem)
        return _own_chance(problem, self.skill, self.spread) if given is None else given

    def answer_chance(self, request: Request, shown: Sequence[float]) -> float:
        """Return the probability of a right answer to a request, including the effects of principles and training.

        shown: see `chance`. Reads `hints`: `problem`, `instruction` (for a system prompt without principles, the digest
        that determines its effect) and `learned`.
        """
        hints = request.hints
        system = "".join(message["content"] for message in request.messages if message["role"] == "system")
        instruction = "" if find_principles(system) else hints.get("instruction", "")
        chance = self.chance(hints["problem"], shown, instruction)
        learned = self.learned + float(hints.get("learned", 0.0))
        return chance + merit_when_trained(self, system, self.trained_share(learned)) + learned

    def trained_share(self, learned: float) -> float:
        """Return the gain in skill from updates, as a share in [0, 1] of the maximum."""
        return min(1.0, max(0.0, learned / self.training_gain)) if self.training_gain else 0.0

    def judges_rightly(self, problem: str, luck: float, persistence: float) -> bool:
        """Return whether a verdict on a right and a wrong response is right; both draws are uniform in [0, 1)."""
        easier = self.own_chance(problem) - self.skill
        # Only the problem determines a persistent error, so that no number of verdicts averages it out.
        drawn = _share(f"judge {problem}") if persistence < self.judge_persistence else luck
        return drawn < min(1.0, max(0.0, self.judge_skill + self.judge_difficulty * easier))

    def verdict(
        self, problem: str, first: bool, second: bool, luck: float, tie: float, persistence: float
    ) -> Literal["A", "B", "T"]:
        """Judge two responses, given whether each is right; the three draws are uniform in [0, 1)."""
        bias = abs(self.position_bias)
        if luck < bias:  # ignores content: bias can spoil a verdict, but never favours the right response
            return "A" if self.position_bias > 0 else "B"
        luck = (luck - bias) / (1 - bias)
        if first == second:
            if tie < self.tie_rate:
                return "T"
            return "A" if luck < 0.5 else "B"
        return "A" if self.judges_rightly(problem, luck, persistence) == first else "B"

    def words(self, luck: float) -> int:
        """Return the number of words of reasoning to write: 0.5 to 1.5 times the mean."""
        return int(self.mean_tokens * (0.5 + luck))


DEFAULT_SKILL = Skill()


@lru_cache(maxsize=100_000)
def _own_chance(problem: str, mean: float, spread: float) -> float:
    """Return a problem's probability of a right answer from scratch: always the same for the same id."""
    if spread == 0 or mean in (0, 1):
        return mean
    if spread == 1:
        return float(_share(problem) < mean)  # the Beta distribution's limit: every problem is certain or hopeless
    weight = 1 / spread - 1  # a Beta's variance is mean * (1 - mean) / (weight + 1)
    rng = np.random.default_rng(_number(problem))
    return float(rng.beta(mean * weight, (1 - mean) * weight))


def _share(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    return _number(text) / 2**32


def _number(text: str) -> int:
    """Return a number in [0, 2**32) that depends only on the text; Python's hash also depends on the process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())

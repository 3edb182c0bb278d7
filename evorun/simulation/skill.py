"""A simulated policy's chance of a right answer, and a simulated judge's verdicts."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import Literal

import numpy as np

from evorun.models.base import Request
from evorun.simulation.principles import find_principles, merit_when_trained
from evorun.simulation.settings import World

_NORMAL = NormalDist()
RATING_NOISE = 1.5
"""Standard deviation of a simulated rating, in points (ours)."""
_MIN_SHARE = 1e-6
"""Distance from 0 and 1 that keeps a normal quantile finite."""


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

    def own_chance(self, problem: str, skill: float | None = None) -> float:
        """Return the problem's probability of a right answer from scratch.

        skill: a mean over problems in place of the model's own. It moves a chance that `skills` gives by as much.
        """
        mean, given = self.skill if skill is None else skill, self.skills.get(problem)
        if given is None:
            return _own_chance(problem, mean, self.spread)
        return min(1.0, max(0.0, given + (mean - self.skill)))

    def answer_chance(self, request: Request, shown: Sequence[float]) -> float:
        """Return the probability of a right answer to a request, including the effects of principles and training.

        shown: see `chance`. Reads `hints`: `problem`, `instruction` (for a system prompt without principles, the digest
        that determines its effect), `advice` (text with principles in the prompt itself) and `learned`.
        """
        hints = request.hints
        system = "".join(message["content"] for message in request.messages if message["role"] == "system")
        instruction = "" if find_principles(system) else hints.get("instruction", "")
        chance = self.chance(hints["problem"], shown, instruction)
        learned = self.learned + float(hints.get("learned", 0.0))
        advised = f"{system}\n{hints.get('advice', '')}"
        return chance + merit_when_trained(self, advised, self.trained_share(learned)) + learned

    def part_chances(self, request: Request, shown: Sequence[float]) -> tuple[float, float]:
        """Return the probabilities that a part is right which responses in view have right, and wrong.

        A part is copied with probability `improvement`, and otherwise made anew; where it is wrong in view, the new one
        repeats the mistake with probability `misleading`. So the better the responses in view, the rarer is one that is
        better still. Without any in view, both are the probability from scratch, as in `answer_chance`.
        """
        scratch = min(1.0, max(0.0, self.answer_chance(request, ())))
        if not shown:
            return scratch, scratch
        anew = (1 - self.improvement) * scratch
        return self.improvement + anew, anew * (1 - self.misleading)

    def trained_share(self, learned: float) -> float:
        """Return the gain in skill from updates, as a share in [0, 1] of the maximum."""
        return min(1.0, max(0.0, learned / self.training_gain)) if self.training_gain else 0.0

    def judges_rightly(self, problem: str, luck: float, persistence: float) -> bool:
        """Return whether a verdict on a right and a wrong response is right; both draws are uniform in [0, 1)."""
        return self._judge_draw(problem, luck, persistence) < self._judge_chance(problem)

    def _judge_draw(self, problem: str, luck: float, persistence: float) -> float:
        """Return the draw in [0, 1) that decides whether a verdict is right."""
        # Only the problem determines a persistent error, so that no number of verdicts averages it out.
        return _share(f"judge {problem}") if persistence < self.judge_persistence else luck

    def _judge_chance(self, problem: str) -> float:
        """Return the probability that a verdict on a right and a wrong response is right."""
        easier = self.own_chance(problem) - self.skill
        return min(1.0, max(0.0, self.judge_skill + self.judge_difficulty * easier))

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

    def lead(self, problem: str, first: bool, second: bool, luck: float, tie: float, persistence: float) -> float:
        """Return by how much a judge takes the first response for better, in standard deviations of its noise.

        Its sign is that of `verdict` for the same arguments, 0 for a tie. A judge that compares two values with normal
        noise gives such leads: one that is rarely wrong is so by larger margins.
        """
        bias = abs(self.position_bias)
        if luck < bias:
            return 1.0 if self.position_bias > 0 else -1.0
        luck = (luck - bias) / (1 - bias)
        if first == second:
            return 0.0 if tie < self.tie_rate else -_quantile(luck)
        margin = _quantile(self._judge_chance(problem)) - _quantile(self._judge_draw(problem, luck, persistence))
        return margin if first else -margin

    @staticmethod
    def rate(quality: float, lead: float, level: float) -> tuple[int, int]:
        """Return two ratings from 1 to 10: around 6 for a wrong response, 8 for a right one.

        quality: of both responses together, from 0 to 2. lead: see `lead`. level: standard normal, the noise that both
        ratings share. Their difference has at least one point wherever there is a lead.
        """
        middle = 6 + quality + level * RATING_NOISE / 2**0.5
        half = lead * RATING_NOISE / 2**0.5
        ratings = [min(10, max(1, round(rating))) for rating in (middle + half, middle - half)]
        if ratings[0] == ratings[1] and lead:
            winner = 0 if lead > 0 else 1
            ratings[winner] += 1 if ratings[winner] < 10 else 0
            ratings[1 - winner] -= 1 if ratings[0] == ratings[1] else 0
        return ratings[0], ratings[1]

    def words(self, luck: float) -> int:
        """Return the number of words of reasoning to write: 0.5 to 1.5 times the mean."""
        return int(self.mean_tokens * (0.5 + luck))


STUDY_SPREAD = 0.5
"""Spread of the studies: on hard problems a search then still errs, whatever skill and improvement add up to (ours)."""

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


def _quantile(share: float) -> float:
    return _NORMAL.inv_cdf(min(1 - _MIN_SHARE, max(_MIN_SHARE, share)))


def _share(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    return _number(text) / 2**32


def _number(text: str) -> int:
    """Return a number in [0, 2**32) that depends only on the text; Python's hash also depends on the process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())

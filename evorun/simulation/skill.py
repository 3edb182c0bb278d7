"""Simulators: they produce a model's texts in simulated runs, with a given skill."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Annotated, Literal, Protocol

import numpy as np
from msgspec import Meta

from evorun.fields import Fraction, PositiveInt, within
from evorun.models.base import Request
from evorun.simulation.principles import PrincipleSettings, find_principles
from evorun.simulation.reviewing import ReviewSettings
from evorun.simulation.writing import WritingSettings


@dataclass
class Skill(PrincipleSettings, WritingSettings, ReviewSettings):
    """Parameters of a simulator.

    The defaults describe a plain model, whose errors are all independent (ours); `conf/engine/simulated.yaml` describes
    a harder one.
    """

    skill: Fraction = 0.4
    """Probability of a right answer from scratch, or mean grade in [0, 1] for graded answers; the mean over problems if
    they differ."""
    spread: Fraction = 0.0
    """Variation of difficulty between problems. 0: all are alike. Otherwise a problem's probability is drawn from the
    Beta distribution with mean `skill` and this share of the maximum variance."""
    skills: dict[str, float] = field(default_factory=dict)
    """Probabilities of some problems by id, in place of drawn ones (`evorun calibrate` estimates them)."""
    typical_mistake: Fraction = 0.0
    """Share of the most frequent wrong answer among a problem's wrong answers, if answers can coincide. The others are
    equally frequent; a smaller share than theirs counts as theirs."""
    improvement: Fraction = 0.15
    """Added to `skill` if all responses in view are right; otherwise in proportion to their quality."""
    misleading: Fraction = 0.0
    """Subtracted from `skill` if all responses in view are wrong; otherwise in proportion to their faults."""
    judge_skill: Fraction = 0.75
    """Probability that a verdict on a right and a wrong response prefers the right one, without position bias; the mean
    over problems if they differ. A decided duel of two verdicts that must agree is right more often."""
    judge_difficulty: Fraction = 0.0
    """Dependence of a judge's errors on difficulty. A problem's `judge_skill` rises by this multiple of the difference
    between its probability of a right answer and `skill`, or falls if that is negative, within [0, 1]."""
    judge_persistence: Fraction = 0.0
    """Share of verdicts on a problem that are all right or all wrong, however often they are repeated. The others are
    independent, so that their errors average out."""
    position_bias: Annotated[float, Meta(ge=-1, le=1)] = 0.1
    """Share of verdicts that name the first response, whatever it is; below 0: the second."""
    tie_rate: Fraction = 0.3
    """Probability of a tie between two responses that are both right or both wrong."""
    instruction_gain: Fraction = 0.1
    """Maximum change in `skill` from a system prompt other than the task's. Each prompt has a fixed amount, which may
    be negative."""
    malformed: Fraction = 0.02
    """Share of completions that cannot be parsed."""
    mean_tokens: PositiveInt = 120
    """Mean length of a completion's reasoning, in words of filler text."""
    learned: Annotated[float, Meta(ge=-1, le=1)] = 0.0
    """Gain in the probability of a right answer from an earlier run's updates (`artifacts/simulated_policy.json`)."""
    training_gain: Annotated[float, Meta(ge=-1, le=1)] = 0.3
    """Maximum gain in the probability of a right answer from updates of the policy; below 0: maximum loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for problem, chance in self.skills.items():
            within(f"engine.skills.{problem}", chance, 0, 1)

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
        return chance + self.merit_under(system, self.trained_share(learned)) + learned

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


class Filler:
    """Reasoning without content: a repeated sentence, of any length."""

    def __init__(self, sentence: str, *, repeats: int = 60) -> None:
        words = " ".join([sentence] * repeats).split(" ")
        self._text = " ".join(words) + " "
        # End positions of the words, so that n words are one slice.
        self._ends = (0, *accumulate(len(word) + 1 for word in words))

    def text(self, words: int) -> str:
        """Return `words` words and a space, or fewer if the text is shorter."""
        return self._text[: self._ends[min(words, len(self._ends) - 1)]]


class Responder(Protocol):
    """A source of completions without weights."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return a completion text for a request, guided by `request.hints`."""
        ...


class Simulator(Responder, Protocol):
    """A task's substitute for a model: it has the answers and a skill, but no weights."""

    def with_skill(self, skill: Skill) -> Responder:
        """Return a simulator for the same problems with this skill."""
        ...

    def at_random(self) -> Responder:
        """Return a simulator that answers at random in the task's format, whatever is right."""
        ...


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

"""What plays the model in simulated runs of a contest: it knows the answers and a skill, and writes like a model."""

from collections.abc import Mapping
from zlib import crc32

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import DEFAULT_SKILL, Filler, Skill, new_instruction
from evorun.tasks.diagnosis import EVALUATIONS, evaluation
from evorun.tasks.math_contest.reading import canonical, read_integer

_FILLER = Filler(
    "Name the unknowns, write down what ties them together, try a small case, and see what carries over to the next."
)
_MALFORMED = (
    "Name the unknowns, write down what ties them together, and then",
    "So the answer is \\boxed{",
    "The answer must be large, which leaves several cases open.",
    "Therefore it is \\boxed{}.",
    "",
)
_MISTAKES = 40
"""How many wrong answers a problem has."""


class ContestSimulator:
    """Answers, judges, scores and finds errors by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | refine | few_shot | instruct | crossover | mutate | judge | fitness |
    errors | reflect), `problem` (id), and `answers` (texts or None): the parents', the incumbent's, the two judged
    ones in the order shown, or the one that is evaluated.
    """

    def __init__(self, answers: Mapping[str, str], largest: int | None, skill: Skill = DEFAULT_SKILL) -> None:
        """Hold the right answer of each problem id. largest: of the integers that can be answers; None: no bound."""
        self._answers = answers
        self._largest = largest
        self._skill = skill

    def with_skill(self, skill: Skill) -> "ContestSimulator":
        """Return a simulator for the same problems with another skill."""
        return ContestSimulator(self._answers, self._largest, skill)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return the completion's text. The request must carry the hints of this task's prompts."""
        hints = request.hints
        if hints["role"] == "reflect":
            return new_instruction(rng)
        malformed, luck, other, length = rng.random(4).tolist()
        if malformed < self._skill.malformed:
            return _MALFORMED[int(other * len(_MALFORMED))]
        gold = self._answers[hints["problem"]]
        right = [answer is not None and canonical(answer) == canonical(gold) for answer in hints["answers"]]
        if hints["role"] == "judge":
            verdict = self._skill.verdict(right[0], right[1], luck, other)
            return msgspec.json.encode({"solution": verdict, "reasoning": "It checks each step."}).decode()
        if hints["role"] in EVALUATIONS:
            return evaluation(hints["role"], right[0] == (luck < self._skill.judge_skill), other)
        succeeds = luck < self._skill.chance(hints["problem"], right, hints.get("instruction", ""))
        answer = gold if succeeds else self._mistake(hints["problem"], gold, other)
        return f"{_FILLER.text(self._skill.words(length))}\n\nSo the answer is \\boxed{{{answer}}}."

    def _mistake(self, problem: str, gold: str, luck: float) -> str:
        """Return a wrong answer: the problem's typical mistake as often as the skill says, else any."""
        share = self._skill.typical_mistake
        if luck < share:
            return self._wrong(gold, crc32(problem.encode()) % _MISTAKES)
        return self._wrong(gold, int((luck - share) / (1 - share) * _MISTAKES))

    def _wrong(self, gold: str, number: int) -> str:
        """Return wrong answer `number`: an integer near the right one, or a small one where that is no integer."""
        value = read_integer(gold)
        if value is None:
            return str(number + 2)
        off = value + 1 + number
        return str(off if self._largest is None else off % (self._largest + 1))

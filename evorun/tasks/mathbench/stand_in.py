"""What plays the model in simulated runs of MathBench: it knows the answers and a skill, and writes like a model."""

from collections.abc import Mapping

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.stand_in import DEFAULT_SKILL, Skill
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import letters

_LETTERS = letters(OPTIONS)
_STEP = "Write down what is given, set up the relation it asks for, compute one step and check it against the options. "
_WORDS = (_STEP * 60).split(" ")
_FILLER = " ".join(_WORDS)
_ENDS = tuple(np.cumsum([len(word) + 1 for word in _WORDS]).tolist())
"""Where each word of the filler ends: a reasoning of n words is one slice."""
_MALFORMED = (
    '{"reasoning": "Write down what is given, set up',
    "I would compare the options one by one and see which of them fits.",
    '{"reasoning": "None of them fits.", "solution": "E"}',
    '{"reasoning": "Two of them fit.", "solution": "A or B"}',
    "",
)


class MathBenchStandIn:
    """Answers and judges by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | judge), `problem` (id), and `answers` (letters or None): the parents', or
    those of the two judged responses in the order shown.
    """

    def __init__(self, answers: Mapping[str, str], skill: Skill = DEFAULT_SKILL) -> None:
        """answers: the right letter of each problem id."""
        self._answers = answers
        self._skill = skill

    def with_skill(self, skill: Skill) -> "MathBenchStandIn":
        """Return a stand-in for the same problems with another skill."""
        return MathBenchStandIn(self._answers, skill)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return the completion's text. The request must carry the hints of this task's prompts."""
        malformed, luck, other, length = rng.random(4).tolist()
        if malformed < self._skill.malformed:
            return _MALFORMED[int(other * len(_MALFORMED))]
        hints = request.hints
        right = [answer == self._answers[hints["problem"]] for answer in hints["answers"]]
        if hints["role"] == "judge":
            reply = {"solution": self._verdict(right, luck, other), "reasoning": "It checks each step."}
        else:
            solution = self._choice(self._answers[hints["problem"]], right, luck, other)
            reply = {"reasoning": self._reasoning(length, solution), "solution": solution}
        return msgspec.json.encode(reply).decode()

    def _choice(self, gold: str, right_parents: list[bool], luck: float, other: float) -> str:
        share = sum(right_parents) / len(right_parents) if right_parents else 0.0
        if luck < self._skill.skill + self._skill.improvement * share:
            return gold
        return _LETTERS.replace(gold, "")[int(other * (OPTIONS - 1))]

    def _verdict(self, right: list[bool], luck: float, other: float) -> str:
        first, second = right
        if first == second:
            prefer_first = 0.5
            if other < self._skill.tie_rate:
                return "T"
        else:
            prefer_first = self._skill.judge_skill if first else 1 - self._skill.judge_skill
        return "A" if luck < prefer_first + self._skill.position_bias else "B"

    def _reasoning(self, luck: float, solution: str) -> str:
        # Half to one and a half times the mean, within the filler.
        words = min(int(self._skill.mean_tokens * (0.5 + luck)), len(_ENDS) - 1)
        return f"{_FILLER[: _ENDS[words]]}So the answer is {solution}."

"""What plays the model in simulated runs of MathBench: it knows the answers and a skill, and writes like a model."""

from collections.abc import Mapping
from zlib import crc32

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import DEFAULT_SKILL, Filler, Skill, new_instruction
from evorun.tasks.diagnosis import EVALUATIONS, evaluation
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import letters

_LETTERS = letters(OPTIONS)
_FILLER = Filler(
    "Write down what is given, set up the relation it asks for, compute one step and check it against the options."
)
_MALFORMED = (
    '{"reasoning": "Write down what is given, set up',
    "I would compare the options one by one and see which of them fits.",
    '{"reasoning": "None of them fits.", "solution": "E"}',
    '{"reasoning": "Two of them fit.", "solution": "A or B"}',
    "",
)


class MathBenchSimulator:
    """Answers, judges, scores and finds errors by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | refine | few_shot | instruct | crossover | mutate | judge | fitness |
    errors | reflect), `problem` (id), and `answers` (letters or None): the parents', the incumbent's, the two judged
    ones in the order shown, or the one that is evaluated.
    """

    def __init__(self, answers: Mapping[str, str], skill: Skill = DEFAULT_SKILL) -> None:
        """answers: the right letter of each problem id."""
        self._answers = answers
        self._skill = skill

    def with_skill(self, skill: Skill) -> "MathBenchSimulator":
        """Return a simulator for the same problems with another skill."""
        return MathBenchSimulator(self._answers, skill)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return the completion's text. The request must carry the hints of this task's prompts."""
        hints = request.hints
        if hints["role"] == "reflect":
            return new_instruction(rng)
        malformed, luck, other, length = rng.random(4).tolist()
        if malformed < self._skill.malformed:
            return _MALFORMED[int(other * len(_MALFORMED))]
        gold = self._answers[hints["problem"]]
        right = [answer == gold for answer in hints["answers"]]
        if hints["role"] == "judge":
            first, second = right
            reply = {"solution": self._skill.verdict(first, second, luck, other), "reasoning": "It checks each step."}
        elif hints["role"] in EVALUATIONS:
            return evaluation(hints["role"], right[0] == (luck < self._skill.judge_skill), other)
        else:
            succeeds = luck < self._skill.chance(hints["problem"], right, hints.get("instruction", ""))
            solution = gold if succeeds else self._mistake(hints["problem"], gold, other)
            steps = _FILLER.text(self._skill.words(length))
            reply = {"reasoning": f"{steps}So the answer is {solution}.", "solution": solution}
        return msgspec.json.encode(reply).decode()

    def _mistake(self, problem: str, gold: str, luck: float) -> str:
        """Return a wrong letter: the problem's typical mistake as often as the skill says, else any."""
        wrong = _LETTERS.replace(gold, "")
        share = self._skill.typical_mistake
        if luck < share:
            return wrong[crc32(problem.encode()) % len(wrong)]
        return wrong[int((luck - share) / (1 - share) * len(wrong))]

"""The model of simulated runs, for any task in text: it knows the right answers, and errs as its skill says."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, ClassVar
from zlib import crc32

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.reflection import reflection
from evorun.models.reviewing import META_ROLES
from evorun.models.simulator import DEFAULT_SKILL, Filler, Skill
from evorun.models.writing import Weights
from evorun.runs.candidates import Response
from evorun.runs.scores import yardstick
from evorun.tasks.base import Problem
from evorun.tasks.judging import EVALUATIONS, evaluation
from evorun.tasks.random_simulator import RandomSimulator
from evorun.tasks.text_task import TextTask

# As many wrong answers as a problem has, if there are so many
_MOST_MISTAKES = 40
# As many other problems' answers are looked at for them
_MOST_TRIED = 200

REVIEWS = ("judge", "score", "plan", *EVALUATIONS)
"""Roles that speak of responses to a problem and do not answer it."""


class TextSimulator:
    """Answers, judges, scores and finds errors by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | refine | few_shot | instruct | crossover | mutate | judge | fitness |
    errors | score | plan), `problem` (id), and `answers` (texts or None): the parents', the incumbent's, the two judged
    ones in the order shown, or the one that is evaluated. Without a `problem`, see `evorun.models.reflection` and
    `evorun.models.reviewing`.
    """

    filler: ClassVar[Filler] = Filler(
        "Say what is asked, find a way to it, take one step at a time and check each of them before the next."
    )
    """The words that its reasoning is made of."""
    malformed: ClassVar[Sequence[str]] = ("",)
    """Replies from which no answer can be read."""
    verdict_reason: ClassVar[str] = "It checks each step."
    no_errors: ClassVar[str] = evaluation("errors", True, 0)
    """An error detector's reply that names none."""

    def __init__(self, task: TextTask, rows: Sequence[tuple[Problem, str | None]]) -> None:
        """Hold the problems and their right answers; where a problem has none, replies are a writer's texts."""
        self._task = task
        self._rows: Mapping[str, tuple[Problem, str | None]] = {row[0].id: row for row in rows}
        self._skill = DEFAULT_SKILL
        self._mistakes: dict[str, Sequence[str]] = {}

    def with_skill(self, skill: Skill) -> "TextSimulator":
        simulator = copy(self)
        simulator._skill = skill
        return simulator

    def at_random(self) -> RandomSimulator:
        return RandomSimulator(self._task, list(self._rows.values()), self.no_errors)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints, skill = request.hints, self._skill
        if hints["role"] in META_ROLES:
            return skill.refine(request, skill.malformed, rng)
        if "problem" not in hints:
            return reflection(request, skill, skill.malformed, rng)
        # Drawn at once and in one order, whatever the role: a role that needs fewer draws does not shift the others.
        malformed, luck, other, last = rng.random(4).tolist()
        if malformed < skill.malformed:
            return self.malformed[int(other * len(self.malformed))]
        problem, _ = self._rows[hints["problem"]]
        if hints["role"] == "plan":
            return self.filler.text(skill.words(last)).strip()
        if hints["role"] == "judge":
            first, second = (self.value(problem, answer) for answer in hints["answers"])
            return self.judgment(skill.verdict(problem.id, first >= second, second >= first, luck, other, last))
        right = [self.is_right(problem, answer) for answer in hints["answers"]]
        if hints["role"] == "score":
            judged = right[0] == skill.judges_rightly(problem.id, luck, last)
            return skill.score(request, 0.0 if self._task.graded_by_opinion else float(judged), rng)
        if hints["role"] in EVALUATIONS:
            return evaluation(hints["role"], right[0] == skill.judges_rightly(problem.id, luck, last), other)
        succeeds = luck < skill.chance_of(request, right)
        return self.attempt(hints, succeeds, other, self.filler.text(skill.words(last)), rng)

    def is_right(self, problem: Problem, answer: str | None) -> bool:
        """Tell whether an answer is as good as the right one; none is where the problem has no right one."""
        _, gold = self._rows[problem.id]
        return gold is not None and self.value(problem, answer) >= self.value(problem, gold)

    def value(self, problem: Problem, answer: str | None) -> float:
        """Return how good an answer is; higher is better, and right answers are equally good."""
        _, gold = self._rows[problem.id]
        measure = yardstick(self._task.scores)
        value = measure.value_in(self._task.score(problem, Response(text=answer or "", answer=answer), gold))
        return -math.inf if value is None else measure.utility(value)

    def judgment(self, verdict: str) -> str:
        """Return a judge's whole reply."""
        return msgspec.json.encode({"solution": verdict, "reasoning": self.verdict_reason}).decode()

    def attempt(
        self, hints: Mapping[str, Any], succeeds: bool, luck: float, steps: str, rng: np.random.Generator
    ) -> str:
        """Return a reply with a right answer if it `succeeds`, else with a mistake; where none is right, a text.

        luck: uniform in [0, 1). steps: words of reasoning, with a blank behind them. rng: for what else is drawn.
        """
        problem, gold = self._rows[hints["problem"]]
        if gold is None:
            weights = hints.get("weights") or Weights.initial(self._skill)  # before any update
            return self.reply(problem, weights.write(rng), steps)
        if succeeds:
            return self.reply(problem, gold, steps)
        wrong, share = self.wrong_answers(problem, gold), self._skill.typical_mistake
        if not wrong:
            return self.malformed[0]
        # Models err alike: most often by the problem's typical mistake, which voting then takes for the answer.
        if luck < share:
            return self.reply(problem, wrong[crc32(problem.id.encode()) % len(wrong)], steps)
        return self.reply(problem, wrong[int((luck - share) / (1 - share) * len(wrong))], steps)

    def reply(self, problem: Problem, answer: str, steps: str) -> str:
        """Return a whole reply; `steps` are words of reasoning, with a blank behind them."""
        return self._task.write(problem, answer, steps)

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        """Return the mistakes that it makes with a problem: right answers to others that are readable but not right."""
        if problem.id not in self._mistakes:
            # Other problems' answers have the right form, whatever that is: so a mistake can be made for any task.
            others = dict.fromkeys(answer for _, answer in self._rows.values() if answer not in (None, gold))
            best, found = self.value(problem, gold), []
            for answer in islice(others, _MOST_TRIED):
                reply = self._task.parse(problem, self._task.write(problem, str(answer)))
                if reply.answer is not None and self.value(problem, reply.answer) < best:
                    found.append(str(answer))
                if len(found) == _MOST_MISTAKES:
                    break
            self._mistakes[problem.id] = found
        return self._mistakes[problem.id]

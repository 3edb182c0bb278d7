"""The model of simulated runs, for any task in text: it knows the right answers, and errs as its skill says.

Where a task scores by degrees, between right and wrong, the answers lie between the right one and others: `skill` is
then the mean degree of the answers: their share of the right answer's score, from 0 (worst) to 1.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar
from zlib import crc32

import msgspec
import numpy as np

from evorun.errors import ConfigError
from evorun.models.base import Request
from evorun.runs.candidates import Response
from evorun.runs.scores import primary_score
from evorun.runs.streams import stream
from evorun.simulation.reflection import reflect
from evorun.simulation.reviewing import EVALUATIONS, META_ROLES, refine_rubric, score_response, simulate_evaluation
from evorun.simulation.simulator import SKILLS, Filler
from evorun.simulation.skill import DEFAULT_SKILL, STUDY_SPREAD, Skill
from evorun.simulation.writing import Weights
from evorun.tasks.base import Problem, Row
from evorun.tasks.capabilities import HasTools
from evorun.tasks.degrees import PARTS, Scale, interpolate
from evorun.tasks.random_simulator import RandomSimulator
from evorun.tasks.text_task import TextTask

# Most wrong answers per problem that are no own ones of the task
_MAX_MISTAKES = 40
# Most answers of other problems that are tried as wrong answers
_MAX_TRIED = 200
# Problems, and answers to each, by which it is compared with random answers
_COMPARED_PROBLEMS, _COMPARED_ANSWERS = 10, 8
# Most problems on which the most frequent answer is looked at
_MAX_VOTED_PROBLEMS = 100
# Excess over its skill, in the mean degree of its worst answers, that is no matter for a warning
_MAX_EXCESS = 0.02

log = logging.getLogger("evorun")

REVIEWS = ("judge", "rate", "score", "plan", *EVALUATIONS)
"""Roles that assess responses to a problem and do not answer it."""


class TextSimulator:
    """Answers, judges, scores and finds errors by coin tosses around the truth.

    Reads `hints`: `role` (generate | evolve | refine | few_shot | instruct | crossover | mutate | judge | rate |
    fitness | errors | score | plan), `problem` (id), and `answers` (texts or None): the parents', the incumbent's, the
    two judged responses' in the order shown, or the evaluated response's. For requests without a `problem`, see
    `evorun.simulation.reflection` and `evorun.simulation.reviewing`.
    """

    filler: ClassVar[Filler] = Filler(
        "Say what is asked, find a way to it, take one step at a time and check each of them before the next."
    )
    """The words of its reasoning."""
    malformed: ClassVar[Sequence[str]] = ("",)
    """Replies from which no answer can be read."""
    verdict_reason: ClassVar[str] = "It checks each step."
    no_errors: ClassVar[str] = simulate_evaluation("errors", 1, 0)
    """An error detector's reply that names no error."""
    adds_improvement: ClassVar[bool] = True
    """Answers in view of right ones are right with probability `skill` + `improvement`, and not part by part."""

    has_typical_mistake: ClassVar[bool] = True
    """Wrong answers coincide as often as `typical_mistake` says."""

    def __init__(self, task: TextTask, rows: Sequence[Row]) -> None:
        """Hold the problems and their right answers.

        Where a problem has none, replies are random answers of several degrees or, where the task draws none, a
        writer's texts.
        """
        self._task = task
        self._rows: Mapping[str, Row] = {row.problem.id: row for row in rows}
        self._skill = DEFAULT_SKILL
        self._measure = primary_score(task.scores)
        # An answer can be better than another without being right.
        self._in_degrees = not (self._measure.is_correctness or task.graded_by_opinion)
        self._mistakes: dict[str, Sequence[str]] = {}
        self._scales: dict[str, Scale] = {}
        self._reported_lack = False

    def with_skill(self, skill: Skill) -> "TextSimulator":
        """Return a copy with this skill. Raises ConfigError where only the grader could tell a right answer."""
        unknown = [row.problem.id for row in self._rows.values() if row.answer is None and row.reference is not None]
        if unknown and not self._in_degrees:
            raise ConfigError(
                f"task={self._task.name}: engine=simulated has no right answer to give to {len(unknown)} of "
                f"{len(self._rows)} problems ({unknown[0]}, ...), whose rows have a reference alone; use another engine"
            )
        simulator = copy(self)
        simulator._skill = skill
        return simulator

    def at_random(self) -> RandomSimulator:
        return RandomSimulator(self._task, list(self._rows.values()), self.no_errors)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints, skill = request.hints, self._skill
        if hints["role"] in META_ROLES:
            return refine_rubric(skill, request, rng)
        if "problem" not in hints:
            return reflect(skill, request, rng)
        # Drawn at once and in one order, whatever the role: a role that needs fewer draws does not shift the others.
        malformed, luck, other, last = rng.random(4).tolist()
        if malformed < skill.malformed:
            return self.malformed[int(other * len(self.malformed))]
        problem = self._rows[hints["problem"]].problem
        if hints["role"] == "plan":
            return self.filler.text(skill.words(last)).strip()
        if hints["role"] == "judge":
            first, second = (self.value(problem, answer) for answer in hints["answers"])
            return self.judgment(skill.verdict(problem.id, first >= second, second >= first, luck, other, last))
        degrees = [self.degree(problem, answer) for answer in hints["answers"]]
        if hints["role"] == "rate":
            first, second = (self.value(problem, answer) for answer in hints["answers"])
            lead = skill.lead(problem.id, first >= second, second >= first, luck, other, last)
            return self.ratings(*skill.rate(sum(degrees), lead, rng.standard_normal()))
        if hints["role"] in ("score", *EVALUATIONS):
            judged = degrees[0] if skill.judges_rightly(problem.id, luck, last) else 1 - degrees[0]
            if hints["role"] == "score":
                return score_response(skill, request, None if self._task.graded_by_opinion else judged, rng)
            return simulate_evaluation(hints["role"], judged, other)
        steps = self.filler.text(skill.words(last))
        if self._in_degrees and self._has_several_answers(problem):
            return self.graded_attempt(request, degrees, other, steps, rng)
        return self.attempt(hints, luck < skill.answer_chance(request, degrees), other, steps, rng)

    def assess(self, request: Request, text: str) -> float | None:
        """Return how good a response to a problem is, in [0, 1]; None for other texts."""
        hints = request.hints
        if hints["role"] in REVIEWS or "problem" not in hints:
            return None
        problem = self._rows[hints["problem"]].problem
        return self.degree(problem, self._task.parse(problem, text).answer)

    def degree(self, problem: Problem, answer: str | None) -> float:
        """Return how good an answer is, from 0 (the worst known answer, or none) to 1 (the right one)."""
        if not self._in_degrees or not self._scale(problem).values:
            return float(self.is_right(problem, answer))
        return self._scale(problem).share(self.value(problem, answer))

    def can_grade(self, problem: str) -> bool:
        row = self._rows.get(problem)
        if row is None or self._task.graded_by_opinion:
            return False
        return bool(self._scale(row.problem).values) if self._in_degrees else row.answer is not None

    def grade_response(self, problem: str, text: str) -> float:
        own = self._rows[problem].problem
        return self.degree(own, self._task.parse(own, text).answer)

    def grades_by_skill(self, problem: str) -> Sequence[float]:
        return SKILLS  # which are mean degrees

    def find_lack_of_skill(self, problems: Sequence[Problem]) -> str | None:
        """Return a warning if its answers, scored by degrees, are worse than random ones or better than its skill."""
        if not self._in_degrees:
            return None
        compared, skill, score = problems[:_COMPARED_PROBLEMS], self._skill.skill, self._measure
        own, random, random_degree = self._draw_values(compared)
        leads = np.subtract(random, own)
        # by two standard errors; or by less, where its skill is below the level that the warning advises
        far = 0.0 if random_degree > skill else 2 * np.std(leads) / math.sqrt(max(len(leads), 1))
        is_worse = len(leads) > 1 and np.mean(leads) > far
        scales = [self._scale(problem) for problem in compared if self._has_several_answers(problem)]
        floor = float(np.mean([scale.means[0] for scale in scales])) if scales else 0.0
        if not is_worse and floor <= skill + _MAX_EXCESS:
            return None
        worst = [scale.worst + scale.means[0] * (scale.best - scale.worst) for scale in scales]
        own_mean, random_mean, worst_mean = (
            f"{score.from_utility(float(np.mean(values))):.4g}" if values else "" for values in (own, random, worst)
        )
        told = f"task={self._task.name}: "
        if is_worse:
            told += f"simulated answers score {own_mean} ({score.shown_name}) at engine.skill={skill:g}, "
            told += f"and those of model=random {random_mean}. "
        else:
            told += f"the worst known answers score {worst_mean} ({score.shown_name}) on average, "
            told += f"more than engine.skill={skill:g} asks for. "
        needed = max(floor, random_degree) if is_worse else floor
        if needed + _MAX_EXCESS >= 1:
            return f"{told}Check the task's right answers: other answers are as good"
        told += f"Set engine.skill, a share of the right answers' score, above {needed:.2f}"
        if not is_worse:
            told += ", or give the task's wrong_answers worse ones"
        if needed + self._skill.improvement >= 1 and self._skill.spread < STUDY_SPREAD:
            told += f", and engine.improvement below {1 - needed:.2f}, so that evolved answers still have errors"
        return told

    def find_failing_vote(self, problems: Sequence[Problem]) -> str | None:
        """Return a warning if votes make its answers worse, since one mistake is more frequent than the right answer.

        None where `typical_mistake` does not decide how often wrong answers coincide.
        """
        if self._in_degrees or not self.has_typical_mistake:
            return None
        compared = [
            (self._skill.own_chance(problem.id), len(self.wrong_answers(problem, gold)))
            for problem in problems[:_MAX_VOTED_PROBLEMS]
            if (gold := self._rows[problem.id].answer) is not None
        ]
        failing = sum(chance < (1 - chance) * self._typical_share(wrong) for chance, wrong in compared if wrong)
        single = sum(chance for chance, _ in compared)
        if not compared or len(compared) - failing >= single:
            return None
        typical, mean = self._skill.typical_mistake, single / len(compared)
        told = (
            f"engine.typical_mistake={typical:g}: on {failing} of {len(compared)} problems one wrong answer is more "
            f"frequent than the right one at engine.skill={self._skill.skill:g}, so that more votes are worse"
        )
        # where few other mistakes are known, they coincide whatever the setting
        enough = mean / (1 - mean)
        return f"{told}. For a comparison, set engine.typical_mistake below {enough:.2g}" if enough < typical else told

    def _typical_share(self, wrong: int) -> float:
        """Return the share of the most frequent one of so many wrong answers."""
        return max(self._skill.typical_mistake, 1 / wrong)  # below that, no mistake is more frequent

    def _draw_values(self, problems: Sequence[Problem]) -> tuple[list[float], list[float], float]:
        """Return the values of its answers and of random ones, where both have one, and random ones' mean degree."""
        own_values, random_values, random_degrees = list[float](), list[float](), list[float]()
        # Where a task has tools, a simulator's first turns may call them, and a check must not run tools: the answers
        # are those of this class, with which an episode ends.
        respond = partial(TextSimulator.respond, self) if isinstance(self._task, HasTools) else self.respond
        # Streams of their own: the level of random answers is the same at any skill.
        simulators = [
            (self.at_random().respond, stream(0, "random level")),
            (respond, stream(0, "own level")),
        ]
        for problem in problems:
            prompt = self._task.generation_prompt(problem)
            request = Request(messages=prompt.messages, json_schema=prompt.json_schema, hints=prompt.hints)
            for _ in range(_COMPARED_ANSWERS):
                texts = (reply(request, rng) for reply, rng in simulators)
                random, own = (self.value(problem, self._task.parse(problem, text).answer) for text in texts)
                if math.isfinite(random):
                    random_degrees.append(self._scale(problem).share(random))
                if math.isfinite(random) and math.isfinite(own):
                    random_values.append(random)
                    own_values.append(own)
        return own_values, random_values, float(np.mean(random_degrees)) if random_degrees else 0.0

    def _has_several_answers(self, problem: Problem) -> bool:
        """Return whether it can give answers of several degrees: not where the right one is all that it knows."""
        return bool(self._scale(problem).values.keys() - {self._rows[problem.id].answer})

    def _scale(self, problem: Problem) -> Scale:
        """Return the values of the answers that it can give: the right one and mistakes, or random ones."""
        if problem.id not in self._scales:
            gold = self._rows[problem.id].answer
            answers = self._draw_answers(problem) if gold is None else (*self.wrong_answers(problem, gold), gold)
            values = {answer: self.value(problem, answer) for answer in answers}
            finite = [value for value in (self.value(problem, None), *values.values()) if math.isfinite(value)]
            self._scales[problem.id] = Scale(min(finite, default=0.0), max(finite, default=0.0), values)
        return self._scales[problem.id]

    def is_right(self, problem: Problem, answer: str | None) -> bool:
        """Return whether an answer is as good as the right one; False where the problem has no right answer."""
        gold = self._rows[problem.id].answer
        return gold is not None and self.value(problem, answer) >= self.value(problem, gold)

    def value(self, problem: Problem, answer: str | None) -> float:
        """Return how good an answer is; higher is better, and right answers are equally good."""
        response, truth = Response(text=answer or "", answer=answer), self._rows[problem.id].truth
        value = self._measure.value_in(self._task.score(problem, response, truth))
        return -math.inf if value is None else self._measure.utility(value)

    def judgment(self, verdict: str) -> str:
        """Return a judge's whole reply."""
        return msgspec.json.encode({"solution": verdict, "reasoning": self.verdict_reason}).decode()

    def ratings(self, first: int, second: int) -> str:
        """Return the whole reply of a judge that rates two responses."""
        return msgspec.json.encode({"reasoning": self.verdict_reason, "rating_a": first, "rating_b": second}).decode()

    def attempt(
        self, hints: Mapping[str, Any], succeeds: bool, luck: float, steps: str, rng: np.random.Generator
    ) -> str:
        """Return a reply with a right answer if it `succeeds`, else with a mistake; a text where no answer is right.

        luck: uniform in [0, 1). steps: words of reasoning, with a blank behind them. rng: for all other draws.
        """
        problem, gold, _ = self._rows[hints["problem"]]
        if gold is None:
            weights = hints.get("weights") or Weights.initial(self._skill)  # before any update
            return self.reply(problem, weights.write(rng), steps)
        if succeeds:
            return self.reply(problem, gold, steps)
        wrong = list(self.wrong_answers(problem, gold))
        if not wrong:
            self._report_lack(problem)
            return self.malformed[0]
        # Models err alike: most often by the problem's typical mistake, which a vote may take for the answer.
        share = self._typical_share(len(wrong))
        typical = wrong.pop(crc32(problem.id.encode()) % len(wrong))
        if luck < share or not wrong:
            return self.reply(problem, typical, steps)
        return self.reply(problem, wrong[int((luck - share) / (1 - share) * len(wrong))], steps)

    def _report_lack(self, problem: Problem) -> None:
        """Warn, once, that unreadable replies stand in for wrong answers."""
        if not self._reported_lack:
            self._reported_lack = True
            log.warning(
                "task=%s: problem %s has no readable wrong answer, so the simulated model errs by unreadable replies "
                "there; give the task its wrong_answers, or a random_answer that its reader accepts",
                self._task.name,
                problem.id,
            )

    def graded_attempt(
        self, request: Request, shown: Sequence[float], luck: float, steps: str, rng: np.random.Generator
    ) -> str:
        """Return a reply whose answer is good to the degree that its parts are right.

        Each part is right with one probability: that at which the mean degree of replies is `Skill.answer_chance`, as
        far as known answers allow. Of a degree without known answers, the nearest count. shown: the degree of each
        response in view. luck: uniform in [0, 1), decides among several. steps, rng: see `attempt`.
        """
        problem = self._rows[request.hints["problem"]].problem
        scale = self._scale(problem)
        chance = scale.find_chance(self._skill.answer_chance(request, shown))
        near = scale.answers[int(rng.binomial(PARTS, chance))]
        return self.reply(problem, near[int(luck * len(near))], steps)

    def reply(self, problem: Problem, answer: str, steps: str) -> str:
        """Return a whole reply; `steps` are words of reasoning, with a blank behind them."""
        return self._task.write(problem, answer, steps)

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        """Return the simulator's mistakes for a problem: readable answers that are not right for it.

        They are all of the task's own wrong answers or, where it has none, answers to other problems and, where it
        scores by degrees, answers between those and the right one. If the task reads none of them, its random answers
        take their place.
        """
        if problem.id not in self._mistakes:
            if own := self._task.wrong_answers(problem, gold):
                self._mistakes[problem.id] = list(self._readable_mistakes(problem, gold, own))
                return self._mistakes[problem.id]
            # Other problems' answers have the right form in any task.
            others = dict.fromkeys(row.answer for row in self._rows.values() if row.answer not in (None, gold))
            found = self._first_mistakes(problem, gold, self._tried(gold, [str(answer) for answer in others]))
            if not found:
                found = self._first_mistakes(problem, gold, self._tried(gold, self._draw_answers(problem)))
            elif self._in_degrees:  # some random answers are worse than any right one to another problem
                found += self._first_mistakes(problem, gold, self._draw_answers(problem))
            self._mistakes[problem.id] = found
        return self._mistakes[problem.id]

    def _draw_answers(self, problem: Problem) -> list[str]:
        """Return different random answers in the task's form; empty where the task draws none."""
        rng = stream(0, "wrong answers", problem.id)
        draws = (self._task.random_answer(problem, rng) for _ in range(_MAX_TRIED))
        return list(dict.fromkeys(answer for answer in draws if answer))

    def _tried(self, gold: str, others: Iterable[str]) -> Iterable[str]:
        """Return other answers or, where the task scores by degrees, answers between them and the right one."""
        if not self._in_degrees:
            return others
        return dict.fromkeys(chain.from_iterable(interpolate(gold, answer) for answer in others))

    def _first_mistakes(self, problem: Problem, gold: str, tried: Iterable[str]) -> list[str]:
        """Return the first `_MAX_MISTAKES` of the answers that are mistakes."""
        return list(islice(self._readable_mistakes(problem, gold, islice(tried, _MAX_TRIED)), _MAX_MISTAKES))

    def _readable_mistakes(self, problem: Problem, gold: str, tried: Iterable[str]) -> Iterator[str]:
        """Yield those of the answers that are read and not right."""
        best = self.value(problem, gold)
        for answer in tried:
            reply = self._task.parse(problem, self._task.write(problem, answer))
            if reply.answer is not None and self.value(problem, reply.answer) < best:
                yield answer

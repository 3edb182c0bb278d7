"""The model of simulated runs of the puzzles: it knows a solution and errs as often as its skill says."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import Filler
from evorun.tasks.base import Problem
from evorun.tasks.puzzles.reading import fenced
from evorun.tasks.puzzles.task import PENALISED_SCORE, Puzzle
from evorun.tasks.simulator import TextSimulator

# Share of a model's mistakes from scratch that it makes again where it revises something right (ours)
_SLIPS = 0.1
# Share of `Skill.improvement` with which it mends a single wrong decision: an answer has many (ours)
_MENDS = 0.25


class SolvedPuzzle(ABC):
    """One problem with a solution: what a simulated model makes of it. A decision is a cell, a vertex, a place."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        """Hold the problem and its solution, in canonical form."""
        self._task = task
        self._problem = problem
        self._solution = solution

    @abstractmethod
    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Return an answer from scratch: each decision is right with probability `skill`."""

    @abstractmethod
    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Return an answer made from others, at least one.

        Where they differ, a decision comes from one that has it right with probability `choice`; then each wrong one
        is mended with probability `repair` and each right one is lost with probability `slip`.
        """

    def fitness(self, answer: str | None) -> float:
        """Return the penalised score, in [0, 100]."""
        return self._task.measure(self._problem, answer).scores[PENALISED_SCORE]

    def errors(self, answer: str | None) -> str:
        """Return what a detector without mistakes would put into its block."""
        if answer is None:
            return "unreadable"
        found = self._task.findings(self._problem, answer)
        return self._task.describe(self._problem, found) if found else "none"


class PuzzleSimulator(TextSimulator):
    """Decides a puzzle's cells, vertices or places one by one: `Skill.skill` is the probability of each."""

    filler: ClassVar[Filler] = Filler(
        "Look at what is fixed, see what it leaves open, decide the narrowest choice first and check it."
    )
    malformed: ClassVar[Sequence[str]] = (
        "I would begin with the most constrained place and go on from there.",
        "```\nno answer\n```",
        "The answer is easy to see",
        "",
    )
    verdict_reason: ClassVar[str] = "It breaks fewer rules."
    no_errors: ClassVar[str] = fenced("none")
    solved: ClassVar[type[SolvedPuzzle]]

    def __init__(self, task: Puzzle, rows: Sequence[tuple[Problem, str | None]]) -> None:
        super().__init__(task, rows)
        self._puzzles = {problem.id: self.solved(task, problem, gold or "") for problem, gold in rows}

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints, skill = request.hints, self._skill
        if "problem" not in hints or hints["role"] in ("judge", "plan"):
            return super().respond(request, rng)
        malformed, luck, other, last = rng.random(4).tolist()
        if malformed < skill.malformed:
            return self.malformed[int(other * len(self.malformed))]
        puzzle, answers = self._puzzles[hints["problem"]], hints["answers"]
        careful = skill.judges_rightly(hints["problem"], luck, last)
        if hints["role"] == "score":
            return skill.score(request, puzzle.fitness(answers[0]) / 100 if careful else other, rng)
        if hints["role"] == "fitness":
            reply = f"{puzzle.fitness(answers[0]) if careful else 100 * other:.1f}"
        elif hints["role"] == "errors":
            # An unreadable answer is seen by every detector, however careless.
            reply = fenced(puzzle.errors(answers[0]) if careful or answers[0] is None else "none")
        else:
            chance = skill.answer_chance(request, ())
            readable = [answer for answer in answers if answer is not None]
            # A careful model rarely spoils what is right already; without any slips a search could only rise.
            slip = _SLIPS * max(0.0, 1 - chance)
            reply = fenced(
                puzzle.revise(readable, skill.judge_skill, _MENDS * skill.improvement, slip, rng)
                if readable
                else puzzle.attempt(chance, rng)
            )
        return f"{self.filler.text(skill.words(last))}\n{reply}"

    def value(self, problem: Problem, answer: str | None) -> float:
        # Below every readable answer, whose penalised score is 0 at least.
        return -1.0 if answer is None else self._puzzles[problem.id].fitness(answer)

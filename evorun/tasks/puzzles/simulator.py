"""What plays the model in simulated runs of the puzzles: it knows a solution and errs as often as its skill says."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.models.simulator import DEFAULT_SKILL, Filler, Skill, new_instruction
from evorun.tasks.puzzles.reading import fenced

_FILLER = Filler("Look at what is fixed, see what it leaves open, decide the narrowest choice first and check it.")
_MALFORMED = (
    "I would begin with the most constrained place and go on from there.",
    "```\nno answer\n```",
    "The answer is easy to see",
    "",
)
_SLIPS = 0.1
"""Share of a model's mistakes from scratch that it makes again where it revises something right (ours)."""


class SolvedPuzzle(Protocol):
    """One problem with a solution: what a simulated model makes of it. A decision is a cell, a vertex, a place."""

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        """Return an answer from scratch: each decision is right with probability `skill`."""
        ...

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        """Return an answer made from others, at least one.

        Where they differ, a decision comes from one that has it right with probability `choice`; then each wrong one
        is mended with probability `repair` and each right one is lost with probability `slip`.
        """
        ...

    def fitness(self, answer: str) -> float:
        """Return the penalised score, in [0, 100]."""
        ...

    def errors(self, answer: str) -> str:
        """Return what a detector without mistakes would reply."""
        ...


class PuzzleSimulator:
    """Answers, improves, judges, scores and finds errors, each as well as the skill says.

    Reads `hints`: `role`, `problem` (id) and `answers` (those shown, None for one that cannot be read).
    `Skill.skill` is the probability that a single decision is right, not a whole answer.
    """

    def __init__(self, puzzles: Mapping[str, SolvedPuzzle], skill: Skill = DEFAULT_SKILL) -> None:
        """puzzles: by problem id."""
        self._puzzles = puzzles
        self._skill = skill

    def with_skill(self, skill: Skill) -> "PuzzleSimulator":
        """Return a simulator with the same puzzles that plays as well as `skill` says."""
        return PuzzleSimulator(self._puzzles, skill)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        """Return the completion's text. The request must carry the hints of a puzzle's prompts."""
        role = request.hints["role"]
        if role == "reflect":
            return new_instruction(rng)
        malformed, luck, other, length = rng.random(4).tolist()
        if malformed < self._skill.malformed:
            return _MALFORMED[int(other * len(_MALFORMED))]
        puzzle, answers = self._puzzles[request.hints["problem"]], request.hints["answers"]
        if role == "judge":
            return self._judgment(puzzle, answers, luck, other)
        words = _FILLER.text(self._skill.words(length))
        if role == "fitness":
            return f"{words}\n{self._fitness(puzzle, answers[0], luck, other):.1f}"
        if role == "errors":
            return f"{words}\n{self._errors(puzzle, answers[0], luck)}"
        return f"{words}\n{fenced(self._answer(puzzle, request, rng))}"

    def _answer(self, puzzle: SolvedPuzzle, request: Request, rng: np.random.Generator) -> str:
        hints = request.hints
        chance = self._skill.chance(hints["problem"], (), hints.get("instruction", ""))
        readable = [answer for answer in hints["answers"] if answer is not None]
        if not readable:
            return puzzle.attempt(chance, rng)
        return puzzle.revise(
            readable, self._skill.judge_skill, self._skill.improvement, _SLIPS * max(0.0, 1 - chance), rng
        )

    def _judgment(self, puzzle: SolvedPuzzle, answers: Sequence[str | None], luck: float, tie: float) -> str:
        first, second = (-1.0 if answer is None else puzzle.fitness(answer) for answer in answers)
        best = max(first, second)
        verdict = self._skill.verdict(first == best, second == best, luck, tie)
        return msgspec.json.encode({"solution": verdict, "reasoning": "It breaks fewer rules."}).decode()

    def _fitness(self, puzzle: SolvedPuzzle, answer: str | None, luck: float, other: float) -> float:
        right = 0.0 if answer is None else puzzle.fitness(answer)
        return right if luck < self._skill.judge_skill else 100 * other

    def _errors(self, puzzle: SolvedPuzzle, answer: str | None, luck: float) -> str:
        if answer is None:
            return fenced("unreadable")
        return puzzle.errors(answer) if luck < self._skill.judge_skill else fenced("none")

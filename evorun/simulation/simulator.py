"""The interface of a task to the simulated world: its simulator knows the right answers and the form of a reply."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import numpy as np

from evorun.models.base import Request
from evorun.simulation.skill import Skill


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


@runtime_checkable
class Assesses(Protocol):
    """A simulator that knows how good its own completions are, on which their confidence depends."""

    def assess(self, request: Request, text: str) -> float | None:
        """Return how good a completion is, in [0, 1]; None where it is no response to a problem."""
        ...


SKILLS = tuple(tenths / 10 for tenths in range(11))
"""Skills at which `GradesResponses.grades_by_skill` has values."""


@runtime_checkable
class GradesResponses(Protocol):
    """A simulator that grades responses to its problems, its own or a real model's, by the skill that they show."""

    def can_grade(self, problem: str) -> bool:
        """Return whether it knows a right answer, or answers of several degrees, to the problem with this id."""
        ...

    def grade_response(self, problem: str, text: str) -> float:
        """Return how good a response is, in [0, 1]."""
        ...

    def grades_by_skill(self, problem: str) -> Sequence[float]:
        """Return the mean grade of responses from scratch at each of `SKILLS`; it never falls."""
        ...


class TaskSimulator(Responder, Protocol):
    """A task's substitute for a model: it has the answers and a skill, but no weights."""

    def with_skill(self, skill: Skill) -> Responder:
        """Return a simulator for the same problems with this skill."""
        ...

    def at_random(self) -> Responder:
        """Return a simulator that answers at random in the task's format, whatever is right."""
        ...


class SplitSimulator:
    """One simulator for a task's problems and for its training problems."""

    def __init__(self, tested: Any, trained: Any, training: frozenset[str]) -> None:
        """training: ids of the problems that `trained` answers."""
        self._tested, self._trained, self._training = tested, trained, training

    def with_skill(self, skill: Skill) -> "SplitSimulator":
        return SplitSimulator(self._tested.with_skill(skill), self._trained.with_skill(skill), self._training)

    def at_random(self) -> "SplitSimulator":
        return SplitSimulator(self._tested.at_random(), self._trained.at_random(), self._training)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        trained = request.hints.get("problem") in self._training
        answering: Responder = self._trained if trained else self._tested
        return answering.respond(request, rng)

    def assess(self, request: Request, text: str) -> float | None:
        trained = request.hints.get("problem") in self._training
        answering = self._trained if trained else self._tested
        return answering.assess(request, text) if isinstance(answering, Assesses) else None

    def can_grade(self, problem: str) -> bool:
        answering = self._find(problem)
        return isinstance(answering, GradesResponses) and answering.can_grade(problem)

    def grade_response(self, problem: str, text: str) -> float:
        return float(self._find(problem).grade_response(problem, text))

    def grades_by_skill(self, problem: str) -> Sequence[float]:
        grades: Sequence[float] = self._find(problem).grades_by_skill(problem)
        return grades

    def _find(self, problem: str) -> Any:
        """Return the simulator that knows a problem."""
        return self._trained if problem in self._training else self._tested

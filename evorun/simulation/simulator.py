"""The interface of a task to the simulated world: its simulator knows the right answers and the form of a reply."""

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

"""What a task is: problems without their answers, prompts, a parser, and a grader that methods never hold.

A task offers capabilities as small protocols (`Generates`, `Judges`, ...); a method names those it needs, and an
impossible pair is refused before any model loads.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from evorun.models.base import Message
from evorun.models.stand_in import StandIn
from evorun.runs.schema import Verdict


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem as a method may see it; carries no answer."""

    id: str
    stratum: str
    """Difficulty level or other group that results are broken down by."""
    data: Mapping[str, Any]
    """What the prompts show (for a multiple-choice question: `question`, `options`)."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the task's words, before sampling parameters and seed are known."""

    messages: tuple[Message, ...]
    json_schema: dict[str, Any] | None = None
    hints: Mapping[str, Any] = {}
    """Reaches the simulated engine only."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, parsed. A text that could not be parsed has `answer=None` and says why in `error`."""

    text: str
    answer: str | None
    reasoning: str = ""
    error: str | None = None


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of ground truth on a response."""

    correct: bool
    scores: dict[str, float] = {}


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """A solved problem of the validation split; only for methods of the regimes `demonstrations` and `labels`."""

    problem: Problem
    answer: str
    reasoning: str = ""


class ScoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A parent as the evolution prompt shows it: a response and the method's own estimate of its quality."""

    response: Response
    score: float


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's completion, parsed."""

    verdict: Verdict
    reason: str = ""


class Task(ABC):
    """The part of a task that methods may touch. Stateless; safe to share between coroutines."""

    name: str

    @abstractmethod
    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; never raises on a model's text, however malformed."""


@runtime_checkable
class Generates(Protocol):
    """The task can be answered from scratch."""

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for an answer, given the problem alone."""
        ...


@runtime_checkable
class Evolves(Protocol):
    """The task can be answered with earlier, scored responses in view."""

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better answer than the parents'."""
        ...


@runtime_checkable
class Judges(Protocol):
    """Two responses to a problem can be compared by a model."""

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which response is better; `first` is shown as A and `second` as B."""
        ...

    def parse_judgment(self, text: str) -> Judgment:
        """Parse the judge's completion; never raises."""
        ...


class Grader(Protocol):
    """Holds the ground truth. Only the driver has one."""

    async def grade(self, problem: Problem, response: Response) -> Grade:
        """Grade one response; an unparsable one is wrong."""
        ...


@dataclass(frozen=True)
class Provenance:
    """Where a task's problems came from; shown with every result."""

    source: str
    """`benchmark` (the benchmark's own files), `stand_in` (other data in its layout) or `sample` (evorun's own set)."""
    description: str
    """One line for tables and reports."""
    digest: str
    """SHA-256 over the selected problems and their answers, in order."""


@dataclass(frozen=True)
class LoadedTask:
    """Everything that loading a task yields; the driver takes it apart and hands methods only `task` and problems."""

    task: Task
    problems: Sequence[Problem]
    grader: Grader
    stand_in: StandIn
    provenance: Provenance
    validation: Sequence[Demonstration] = ()


@dataclass
class TaskConfig:
    """Schema base of `conf/task/*.yaml`; each task module has its own subclass."""

    task_class: ClassVar[type[Task]]
    """The task that `load` makes; its capabilities are checked before anything is loaded."""

    name: str
    description: str = ""

    def load(self, seed: int) -> LoadedTask:
        """Read, select and check the problems. Raises DataError or ConfigError with one line."""
        raise NotImplementedError

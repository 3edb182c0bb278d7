"""What a task is: problems without their answers, prompts, a parser, and a grader that methods never hold.

A task offers capabilities as small protocols (`Generates`, `Judges`, ...); a method names those it needs, and an
impossible pair is refused before any model loads.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from evorun.errors import DataError
from evorun.models.base import Message
from evorun.models.stand_in import StandIn
from evorun.runs.schema import Verdict
from evorun.sandbox.base import CaseResult, Program, Suite


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


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What may be known of a response without ground truth: the outcome of a problem's public tests."""

    text: str
    """As prompts show it."""
    score: float
    """Share of the public tests passed, in [0, 1]."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, parsed. A text that could not be parsed has `answer=None` and says why in `error`."""

    text: str
    answer: str | None
    reasoning: str = ""
    memory: str = ""
    """Notes that the model leaves for those who build on this response (evolving memory, appendix A.1)."""
    error: str | None = None
    feedback: Feedback | None = None
    """None while nobody has looked, or where the task gives none."""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of ground truth on a response."""

    correct: bool
    scores: dict[str, float] = {}
    detail: str = ""
    """What happened, for `evorun grade` (`wrong_answer at test 3`); never shown to a method."""


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """A solved problem of the validation split; only for methods of the regimes `demonstrations` and `labels`."""

    problem: Problem
    answer: str
    reasoning: str = ""


class ScoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A parent as the evolution prompt shows it: a response and the method's own estimate of its quality."""

    response: Response
    score: float
    win_reason: str = ""
    """What the judge said when the response last won a duel; empty when it has won none."""
    loss_reason: str = ""


AttemptOutcome = Literal["first", "won", "lost", "undecided"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier proposal as the refinement prompt shows it, with how it fared against the incumbent of its time."""

    response: Response
    outcome: AttemptOutcome
    """`first`: it was there before any incumbent. `undecided`: a tie or an invalid judgment."""
    reason: str = ""
    """The judge's explanation."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The errors that a detector found in a response, no more than were asked for (Lyria, section 4.1.1)."""

    text: str = ""
    """As prompts show them; empty when none was found."""
    findings: tuple[Any, ...] = ()
    """The same as the task's symbolic operators read them: JSON values, one an error."""


class Individual(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a population as genetic operators see it (Lyria, section 4.1)."""

    response: Response
    fitness: float
    """In [0, 100]; higher is better."""
    errors: Diagnosis


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a symbolic system says of a response."""

    fitness: float
    """In [0, 100]; 100 exactly when the response is right as far as the system can tell."""
    errors: Diagnosis


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's completion, parsed."""

    verdict: Verdict
    reason: str = ""


class DrawHelp(NamedTuple):
    """What a user can change about the draw of a task's problems, as errors say it."""

    more_validation: str = "raise task.validation_per_stratum"
    """How to get a larger validation split."""
    grade_held_out: str = "lower task.validation_per_stratum and raise task.per_stratum to grade it"
    """How a problem of the validation split becomes one of those that are worked on."""
    keys: str = "task.per_stratum, task.validation_per_stratum, task.limit and seed"
    """What decides the draw, beside `task.data`."""


class Task(ABC):
    """The part of a task that methods may touch. Stateless; safe to share between coroutines."""

    name: str
    draw_help: ClassVar[DrawHelp] = DrawHelp()

    @abstractmethod
    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; never raises on a model's text, however malformed."""

    def signature(self, problem: Problem, response: Response) -> str:
        """Return a text that is equal for responses with the same answer; the response has one."""
        return response.answer or ""


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


@runtime_checkable
class Demonstrates(Protocol):
    """The task can be answered with solved problems in view (few-shot prompting)."""

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for an answer, given demonstrations, each with its reasoning."""
        ...

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with the answer and the reasoning of a response that was graded correct."""
        ...


@runtime_checkable
class Refines(Protocol):
    """A response can be revised in view of the attempts before it (Feedback Descent, appendix D)."""

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better answer than the incumbent's; `attempts` are the latest ones, in order."""
        ...


@runtime_checkable
class Instructs(Protocol):
    """The task can be answered under a system prompt of the method's choice (prompt optimisation)."""

    def seed_instruction(self) -> str:
        """Return the system prompt to start from (B.1.6, B.2.6)."""
        ...

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for an answer under this system prompt."""
        ...

    def reflection_record(self, problem: Problem, response: Response, demonstration: Demonstration | None) -> str:
        """Say what was right or wrong about a response, for whoever revises the instruction.

        With the demonstration (regime `labels`) the right answer may be named; without it the response's own feedback
        is all there is.
        """
        ...


class Tools(Protocol):
    """What a run lends a task beside models: things that take time, behind the run's journal."""

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        """Run a program on a suite's cases in the sandbox; see `evorun.sandbox.testing.test`."""
        ...


@runtime_checkable
class GivesFeedback(Protocol):
    """Something can be known of a response without ground truth (public tests)."""

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        """Return the response with its feedback."""
        ...


@runtime_checkable
class Recombines(Protocol):
    """A model can merge two responses and improve a single one (Lyria, sections 4.1.6 and 4.1.7)."""

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for a response that joins what is good in two, each shown with its fitness and its errors."""
        ...

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a response that mends what is bad in one, shown with its fitness and its errors."""
        ...


@runtime_checkable
class Operates(Protocol):
    """The task has symbolic operators: crossover and mutation without a model (Lyria, sections 4.1.6 and 4.1.7)."""

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Return a child of two individuals; a parent's own response where nothing can be combined. Never raises."""
        ...

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return a changed response; the individual's own where nothing can be changed. Never raises."""
        ...


@runtime_checkable
class Verifies(Protocol):
    """A symbolic system scores responses and names their errors during the search: Lyria's oracle (section 4.1.4)."""

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Score a response, one that does not parse too (fitness 0), and name at most `max_errors` of its errors."""
        ...


@runtime_checkable
class Diagnoses(Protocol):
    """A model can be asked for a response's errors (Lyria's LLM-based error detector, section 4.1.1)."""

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for all errors of a response."""
        ...

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Parse the detector's completion; None when it cannot be read. Never raises."""
        ...


@runtime_checkable
class Scores(Protocol):
    """A model can be asked how good a response is (Lyria's LLM-based fitness evaluator, section 4.1.4)."""

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for a response's fitness, in [0, 100]."""
        ...

    def parse_fitness(self, text: str) -> float | None:
        """Parse the evaluator's completion, into [0, 100]; None when it cannot be read. Never raises."""
        ...


class Grader(Protocol):
    """Holds the ground truth. Only the driver has one."""

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; an unparsable one is wrong."""
        ...


@dataclass(frozen=True)
class Provenance:
    """Where a task's problems came from; shown with every result."""

    source: str
    """`benchmark` (the benchmark's own files), `stand_in` (other data in its layout), `sample` (evorun's own set) or
    `generated` (instances that evorun generates as a paper describes)."""
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
    """Knows the answers of the problems and of the validation split."""
    stand_in: StandIn
    provenance: Provenance
    validation: Sequence[Demonstration] = ()


@dataclass
class TaskConfig:
    """Schema base of `conf/task/*.yaml`; each task module has its own subclass."""

    task_class: ClassVar[type[Task]]
    """The task that `load` makes; its capabilities are checked before anything is loaded."""
    runs_programs: ClassVar[bool] = False
    """Whether grading needs the sandbox."""
    training_split: ClassVar[str | None] = None
    """What `split` is called for a run on the problems to train on; None: the task has no such split."""

    name: str
    description: str = ""

    def load(self, seed: int) -> LoadedTask:
        """Read, select and check the problems. Raises DataError or ConfigError with one line."""
        raise NotImplementedError

    def training(self, seed: int) -> LoadedTask:
        """Give the problems to train on, with their grader: never one that `load` gives as `problems`.

        Here they are the validation split, for a task without a split of its own for training. Raises DataError where
        there are none, and as `load` does; ConfigError where the settings name a run that has nothing else to train on.
        """
        loaded = self.load(seed)
        if not loaded.validation:
            raise DataError(
                f"task={self.name}: expected problems to train on, its validation split has none; "
                f"{self.task_class.draw_help.more_validation}"
            )
        provenance = Provenance(
            source=loaded.provenance.source,
            description=f"validation split of {loaded.provenance.description}",
            digest=sha256(msgspec.json.encode(loaded.validation)).hexdigest(),
        )
        problems = tuple(demonstration.problem for demonstration in loaded.validation)
        return replace(loaded, problems=problems, provenance=provenance, validation=())

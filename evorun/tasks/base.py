"""A task: problems without their answers, prompts, a parser, and a grader that methods never hold.

The protocols of `evorun.tasks.capabilities` define what else a task can offer to methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta

from evorun.errors import DataError, PluginError
from evorun.fields import Checked, NonNegativeFloat, NonNegativeInt, PositiveInt
from evorun.models.base import Message
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score, find_violation
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.simulation.simulator import TaskSimulator

T = TypeVar("T")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem as a method may see it; carries no answer."""

    id: str
    stratum: str
    """Difficulty level or other group that results are broken down by."""
    data: Mapping[str, Any]
    """Fields that prompts show (for a multiple-choice question: `question`, `options`)."""


class Row(NamedTuple):
    """A problem with what only the driver and the grader know of it; a plain pair of problem and answer will do."""

    problem: Problem
    answer: str | None = None
    """A right answer, as `TextTask.write` writes it into demonstrations and simulated replies; None: unknown."""
    reference: Any = None
    """The value that `TextTask.score` compares a response with, as JSON could hold it: a target, tests, a record; None:
    the answer."""

    @property
    def truth(self) -> Any:
        """The reference that `TextTask.score` receives; None where the task scores responses without one."""
        return self.answer if self.reference is None else self.reference


def look_up(known: Mapping[str, T], problem: Problem) -> T:
    """Return what is known of a problem, by its id. Raises DataError for one that was not loaded."""
    if problem.id not in known:
        raise DataError(f"problem '{problem.id}': expected one of the {len(known)} loaded problems")
    return known[problem.id]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the task's words, without sampling parameters and seed."""

    messages: tuple[Message, ...]
    json_schema: dict[str, Any] | None = None
    hints: Mapping[str, Any] = {}
    """Only for the simulated engine."""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of ground truth on a response."""

    scores: dict[str, float] = {}
    """By name, as `Task.scores` declares them, without `accuracy`, which is `correct`."""
    correct: bool | None = None
    """None where there is no right and wrong."""
    detail: str = ""
    """The outcome in words, for `evorun grade` (`wrong_answer at test 3`); never shown to a method."""


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """A solved problem of the validation split; only for methods of the regimes `demonstrations` and `labels`."""

    problem: Problem
    answer: str
    reasoning: str = ""

    @property
    def reference(self) -> str:
        """The worked solution where there is one, else the answer."""
        return self.reasoning or self.answer


class DrawHelp(NamedTuple):
    """Advice in errors about the draw of a task's problems."""

    more_validation: str = "hold more problems out in the task (`validation` of what it loads)"
    """Advice for a larger validation split."""
    grade_held_out: str = "hold fewer problems out in the task to grade it"
    """Advice for grading a problem of the validation split."""
    keys: str = "task.draw_seed and the task's own keys"
    """The keys that decide the draw, apart from `task.data`."""


class Task(ABC):
    """The part of a task that methods may access. Stateless; safe to share between coroutines."""

    name: str
    scores: ClassVar[tuple[Score, ...]] = (ACCURACY,)
    """The scores of a grade. Tables and curves show the first one; the second one breaks ties in it."""
    reward_score: ClassVar[Score | None] = None
    """The score of which rewards in training are made; None: the primary one."""
    strata: tuple[str, ...] = ()
    """The problems' strata in the order of tables and pictures; those that are not here follow by name."""
    draw_help: ClassVar[DrawHelp] = DrawHelp()
    graded_by_opinion: ClassVar[bool] = False
    """True when its grade is the gold judge's opinion (`evorun.tasks.opinions`), without ground truth to learn from."""
    script: ClassVar[str | None] = None
    """The expected script of responses, as in Unicode character names; None: any."""
    free_text: ClassVar[bool] = False
    """True when answers are long texts of which no two are equal, so that there is nothing to vote on."""

    @abstractmethod
    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; never raises on a model's text, however malformed."""

    def signature(self, problem: Problem, response: Response) -> str:
        """Return a text that is equal for responses with equal answers; the response must have one."""
        return response.answer or ""

    def shows_excerpt(self, response: Response) -> bool:
        """Return whether later prompts, including a judge's, show only a part of the response's text."""
        return False


class Tools(Protocol):
    """A run's tools for tasks, other than models; their slow work goes through the run's journal."""

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        """Run a program on a suite's cases in the sandbox; see `evorun.sandbox.testing.test`."""
        ...

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return the recorded result of slow or opinionated work of a grader, or do the work and record it.

        about: all that the result depends on, in values that JSON has; equal ones share a result. kind: the result's
        type, as msgspec reads it. An exception of `compute` is not recorded: raise one where the grader itself failed,
        never for what a model wrote.
        """
        ...


class GradingTools(Tools, Protocol):
    """The tools of graders, which methods cannot reach."""

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        """Return the gold judge's reply, as text; None where the request was refused or the reply cut off.

        attempt: above 0 for another opinion on the same prompt.
        """
        ...


class Grader(Protocol):
    """Holds the ground truth. Only the driver has one."""

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response; an unparsed one is wrong."""
        ...


@dataclass(frozen=True)
class Provenance:
    """The source of a task's problems; shown with every result."""

    source: str
    """`benchmark` (the benchmark's own files), `stand_in` (other data in its layout), `sample` (evorun's own set) or
    `generated` (instances that evorun generates as a paper describes)."""
    description: str
    """One line for tables and reports."""
    digest: str
    """SHA-256 over the selected problems and their answers, in order."""


@dataclass(frozen=True)
class LoadedTask:
    """Everything that loading a task yields; the driver passes only `task` and problems on to methods."""

    task: Task
    problems: Sequence[Problem]
    grader: Grader
    """It knows the answers of the problems and of the validation split."""
    simulator: TaskSimulator
    provenance: Provenance
    validation: Sequence[Demonstration] = ()
    training: Sequence[Problem] = ()
    """Separate problems to train on; empty: training uses the validation split."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Right answers of all splits by problem id, where a problem has one; for the driver alone."""
    solutions: Mapping[str, str] = field(default_factory=dict)
    """Worked solutions that include the answers, by problem id, where the benchmark has them; for the driver alone."""

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response, as `grader` does. Raises PluginError for scores that the task did not declare."""
        grade = await self.grader.grade(problem, response, tools)
        violation = find_violation(self.task.scores, grade)
        if violation is not None:
            raise PluginError(f"task={self.task.name}: {violation}; fix its grader's return value, or its `scores`")
        return grade


@dataclass
class SamplingConfig(Checked):
    """Values that a task gives to methods, which read them as `${from_task:max_tokens,1024}` in their YAML.

    None leaves a value to the method. A plug-in task sets them as `sampling: SamplingConfig = field(default_factory=
    lambda: SamplingConfig(max_tokens=2048))`, or in a YAML file.
    """

    section = "task.sampling"

    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    max_tokens: PositiveInt | None = None
    """Maximum completion tokens of a response."""
    judge_max_tokens: PositiveInt | None = None
    """Maximum completion tokens of a judgment."""


@dataclass
class TaskConfig(Checked):
    """Base schema of `conf/task/*.yaml`; each task module has its own subclass."""

    section = "task"

    task_class: ClassVar[type[Task]]
    """The class of the task that `load` makes; its capabilities are checked before anything is loaded."""
    runs_programs: ClassVar[bool] = False
    """True where grading needs the sandbox."""
    training_split: ClassVar[str | None] = None
    """The value of `split` for a run on the training problems; None: the task has no such split."""

    name: str
    description: str = ""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    draw_seed: NonNegativeInt = 0
    """Seed of the draw or generation of problems; separate from the run's seed, so that runs with other seeds share
    them."""

    @property
    def uses_sandbox(self) -> bool:
        """True where a run needs the sandbox: for its grader, or for a tool that models use."""
        return self.runs_programs

    @property
    def private_files(self) -> Sequence[Path]:
        """The user's files that no program may read, since they hold its tests; for tasks that run programs."""
        return ()

    def add_to_sandbox(self, settings: SandboxConfig) -> SandboxConfig:
        """Return the sandbox's settings with the packages that the grader's own programs import."""
        return settings

    def load(self) -> LoadedTask:
        """Read, select and check the problems. Raises DataError or ConfigError."""
        raise NotImplementedError

    def load_training(self) -> LoadedTask:
        """Return the problems to train on, with their grader; never any that `load` returns as `problems`.

        By default they are the training split from `load`, or the validation split where there is none. Raises
        DataError without such problems, and as `load` does; ConfigError where the run already works on the train
        split.
        """
        # A run never trains on the problems that it reports, so the fallback is the validation split.
        loaded = self.load()
        split = "training" if loaded.training else "validation"
        problems = tuple(loaded.training) or tuple(demonstration.problem for demonstration in loaded.validation)
        if not problems:
            raise DataError(
                f"task={self.name}: expected problems to train on, its validation split has none; "
                f"{self.task_class.draw_help.more_validation}"
            )
        # A digest of the training problems shows whether two runs trained on the same.
        provenance = Provenance(
            source=loaded.provenance.source,
            description=f"{split} split of {loaded.provenance.description}",
            digest=sha256(msgspec.json.encode(loaded.training or loaded.validation)).hexdigest(),
        )
        return replace(loaded, problems=problems, provenance=provenance, validation=(), training=())

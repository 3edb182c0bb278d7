"""A task: problems without their answers, prompts, a parser, and a grader that methods never hold.

The protocols of `evorun.tasks.capabilities` say what else a task can do for methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from evorun.errors import DataError, PluginError, above, at_least, within
from evorun.models.base import Message
from evorun.models.simulator import Simulator
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score, find_violation
from evorun.sandbox.base import CaseResult, Program, Suite


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem as a method may see it; carries no answer."""

    id: str
    stratum: str
    """Difficulty level or other group that results are broken down by."""
    data: Mapping[str, Any]
    """Shown by the prompts (for a multiple-choice question: `question`, `options`)."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the task's words, before sampling parameters and seed are known."""

    messages: tuple[Message, ...]
    json_schema: dict[str, Any] | None = None
    hints: Mapping[str, Any] = {}
    """Reaches the simulated engine only."""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of ground truth on a response."""

    scores: dict[str, float] = {}
    """By name, as `Task.scores` declares them; `accuracy` is left to `correct`."""
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
        """The worked solution, where there is one, or else the answer."""
        return self.reasoning or self.answer


class DrawHelp(NamedTuple):
    """Advice on the draw of a task's problems, as errors give it."""

    more_validation: str = "raise task.validation_per_stratum"
    """To get a larger validation split."""
    grade_held_out: str = "lower task.validation_per_stratum and raise task.per_stratum to grade it"
    """To turn a problem of the validation split into one that is worked on."""
    keys: str = "task.per_stratum, task.validation_per_stratum, task.draw_seed and task.limit"
    """The keys that decide the draw, beside `task.data`."""


class Task(ABC):
    """The part of a task that methods may touch. Stateless; safe to share between coroutines."""

    name: str
    scores: ClassVar[tuple[Score, ...]] = (ACCURACY,)
    """The scores of a grade. Tables and curves show the first one; the second one breaks ties in it."""
    draw_help: ClassVar[DrawHelp] = DrawHelp()
    graded_by_opinion: ClassVar[bool] = False
    """Its grade is the gold judge's opinion (`evorun.tasks.opinions`): there is no ground truth to learn from."""
    script: ClassVar[str | None] = None
    """The script that responses are expected in, a word of Unicode's names of characters; None: any."""
    free_text: ClassVar[bool] = False
    """Its answers are texts at length, of which no two are the same: there is nothing to vote on."""

    @abstractmethod
    def parse(self, problem: Problem, text: str) -> Response:
        """Parse a completion; never raises on a model's text, however malformed."""

    def signature(self, problem: Problem, response: Response) -> str:
        """Return a text that is equal for responses with the same answer; the response has one."""
        return response.answer or ""

    def shows_excerpt_of(self, response: Response) -> bool:
        """Return whether later prompts, a judge's among them, show only a part of the response's text."""
        return False


class Tools(Protocol):
    """A run's tools for tasks, beside models: things that take time, behind the run's journal."""

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        """Run a program on a suite's cases in the sandbox; see `evorun.sandbox.testing.test`."""
        ...


class GradingTools(Tools, Protocol):
    """The tools of graders, beyond those that methods can reach."""

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        """Return the gold judge's opinion; None where the request is refused, or the reply was cut off.

        attempt: above 0, another opinion on the same.
        """
        ...


class Grader(Protocol):
    """Holds the ground truth. Only the driver has one."""

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response; an unparsable one is wrong."""
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
    """Everything that loading a task yields; the driver takes it apart and hands methods only `task` and problems."""

    task: Task
    problems: Sequence[Problem]
    grader: Grader
    """Knows the answers of the problems and of the validation split."""
    simulator: Simulator
    provenance: Provenance
    validation: Sequence[Demonstration] = ()
    training: Sequence[Problem] = ()
    """Problems to train on, apart from all others; empty: training works on the validation split."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Right answers of all splits by problem id, where a problem has one; for the driver alone."""
    solutions: Mapping[str, str] = field(default_factory=dict)
    """Worked solutions, the answers in them, by problem id, where the benchmark has them; for the driver alone."""

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response, as `grader` does. Raises PluginError for scores that the task has not declared so."""
        grade = await self.grader.grade(problem, response, tools)
        wrong = find_violation(self.task.scores, grade)
        if wrong is not None:
            raise PluginError(f"task={self.task.name}: {wrong}; mend what its grader returns, or its `scores`")
        return grade


@dataclass
class SamplingConfig:
    """Values that a task gives to whatever method reads them, as `${from_task:max_tokens,1024}` in its YAML.

    None leaves a value to the method. A plug-in task gives them as `sampling: SamplingConfig = field(default_factory=
    lambda: SamplingConfig(max_tokens=2048))`, or in a YAML file.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Completion tokens of a response at most."""
    judge_max_tokens: int | None = None
    """Completion tokens of a judgment at most."""

    def __post_init__(self) -> None:
        at_least("task.sampling.temperature", self.temperature, 0)
        above("task.sampling.top_p", self.top_p, 0)
        within("task.sampling.top_p", self.top_p, 0, 1)
        for key in ("max_tokens", "judge_max_tokens"):
            at_least(f"task.sampling.{key}", getattr(self, key), 1)


@dataclass
class TaskConfig:
    """Schema base of `conf/task/*.yaml`; each task module has its own subclass."""

    task_class: ClassVar[type[Task]]
    """The task that `load` makes; its capabilities are checked before anything is loaded."""
    runs_programs: ClassVar[bool] = False
    """True where grading needs the sandbox."""
    training_split: ClassVar[str | None] = None
    """The value of `split` for a run on the problems to train on; None: the task has no such split."""

    name: str
    description: str = ""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    draw_seed: int = 0
    """Decides which problems are drawn or generated; not the run's seed, so that a comparison's seeds share them."""

    def __post_init__(self) -> None:
        at_least("task.draw_seed", self.draw_seed, 0)

    @property
    def private_files(self) -> Sequence[Path]:
        """Files of the user's that no program may read: what it is tested on. For tasks that run programs."""
        return ()

    def load(self) -> LoadedTask:
        """Read, select and check the problems. Raises DataError or ConfigError with one line."""
        raise NotImplementedError

    def training(self) -> LoadedTask:
        """Give the problems to train on, with their grader: never one that `load` gives as `problems`.

        Here they are the training split that `load` gives, or the validation split where it gives none. Raises
        DataError where there are none, and as `load` does; ConfigError where the settings name a run that has nothing
        else to train on.
        """
        # The problems that a run reports on are never trained on, so the fallback is the validation split.
        loaded = self.load()
        split = "training" if loaded.training else "validation"
        problems = tuple(loaded.training) or tuple(demonstration.problem for demonstration in loaded.validation)
        if not problems:
            raise DataError(
                f"task={self.name}: expected problems to train on, its validation split has none; "
                f"{self.task_class.draw_help.more_validation}"
            )
        # The digest is over what is trained on, so that two runs can be told to have trained on the same.
        provenance = Provenance(
            source=loaded.provenance.source,
            description=f"{split} split of {loaded.provenance.description}",
            digest=sha256(msgspec.json.encode(loaded.training or loaded.validation)).hexdigest(),
        )
        return replace(loaded, problems=problems, provenance=provenance, validation=(), training=())

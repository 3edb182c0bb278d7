"""Methods: algorithms that touch nothing but the context they are given."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from evorun.errors import above, at_least, within
from evorun.methods.context import Context, RunContext
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Step
from evorun.tasks.base import Problem, Task
from evorun.tasks.capabilities import HasPublicTests
from evorun.training.wire import Objective

Regime = Literal["problem_only", "demonstrations", "public_tests", "oracle", "labels"]
"""The information that a method has beside the problem (Duel-Evolve paper, section 4.2). `oracle`: a symbolic system
that knows the right answer scores candidates during the search (Lyria paper, section 4.1.4), or judges them."""


@dataclass(kw_only=True)
class SamplingSettings:
    """Sampling of responses, part of every configuration of a method that asks for some."""

    temperature: float
    top_p: float
    max_tokens: int
    """Completion tokens of a response at most."""

    def __post_init__(self) -> None:
        at_least("method.max_tokens", self.max_tokens, 1)
        at_least("method.temperature", self.temperature, 0)
        above("method.top_p", self.top_p, 0)
        within("method.top_p", self.top_p, 0, 1)

    @property
    def sampling(self) -> Sampling:
        """The sampling parameters of a response."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


class Method(ABC):
    """An algorithm; its hyperparameters are the fields of `Config`, the schema of its YAML."""

    name: ClassVar[str]
    description: ClassVar[str]
    regime: ClassVar[Regime]
    needs: ClassVar[tuple[type, ...]]
    """The task protocols that it relies on."""
    roles: ClassVar[Mapping[str, Role]] = {}
    """The model role that answers each call role; the policy answers those that are not named here.
    See `active_roles`."""
    observes: ClassVar[bool] = False
    """It looks at a task's feedback (public tests) where there is any."""
    requires_student: ClassVar[bool] = False
    """It is only for a model that is fine-tuned before the run (`student=`)."""
    Config: ClassVar[type]
    trains: ClassVar[bool] = False
    """It updates weights: it then has an `objective`, and its runs have the settings `training`."""
    learns_from_problems: ClassVar[bool] = False
    """It is given the task's training split."""
    plays_ahead: ClassVar[str | None] = None
    """The role of its rollouts, where it can play those of a step during the update before (`training.max_lag`)."""
    config: Any
    """An instance of `Config`; subclasses may narrow the type."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @property
    def last_step(self) -> int | None:
        """Number of the step after which the method ends, when that is known beforehand."""
        return None

    @property
    def unlimited_if_null(self) -> Mapping[str, int | None]:
        """Hyperparameters of which null leaves it to the budget how much is done; without one they need a number."""
        return {}

    @property
    def rubric_settings(self) -> RubricSettings | None:
        """The settings of rewards by a rubric; None where none rewards."""
        return None

    @property
    def transplants(self) -> bool:
        """True when system prompts are tested under the weights of all evaluations, after the run."""
        return False

    @property
    def active_roles(self) -> Mapping[str, Role]:
        """The model role that answers each call role under these hyperparameters."""
        return self.roles

    def information_regime(self, task: type[Task]) -> Regime:
        """Return the information regime on a task: feedback turns `problem_only` into `public_tests`."""
        # Labels and demonstrations tell more than public tests do, so those regimes stay as they are.
        feedback = self.observes and issubclass(task, HasPublicTests)
        return "public_tests" if feedback and self.regime == "problem_only" else self.regime

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:  # noqa: B027 - most have nothing to check
        """Raise ConfigError or DataError for settings that the validation split does not allow, before a run begins."""

    def fit_to(self, training_problems: int) -> str | None:
        """Settle what depends on the number of training problems, before a run begins; return a line on it."""
        return None

    def warnings(self, calls: int | None) -> list[str]:
        """Return a line for each thing that the method leaves undone with `calls` a problem (None: no limit)."""
        return []

    def incompatibility(self, task: type[Task]) -> str | None:
        """Return why these hyperparameters cannot work on a task that the method suits otherwise; None when they can.

        One line that says what is missing and what to set instead.
        """
        return None

    def objective(self, run: Path) -> Objective:
        """Return the trainer's objective; for methods that train. `run`: the run directory, for files of data.

        Raises DataError for data that cannot be learned from.
        """
        raise NotImplementedError

    async def prepare(self, ctx: RunContext) -> None:  # noqa: B027 - most methods prepare nothing
        """Prepare the run, once, before the first problem; all problems share the cost of the calls."""


class PerProblem(Method):
    """A method that works on each problem by itself."""

    @abstractmethod
    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Work on the context's problem; yield after each step, ending when done or out of budget."""


class DatasetLevel(Method):
    """A method that works on all problems together: what it learns on one serves the others."""

    @abstractmethod
    def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Work on the run; yield the state of every problem after each step, by problem id."""

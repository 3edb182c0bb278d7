"""The interface of methods: algorithms that see nothing but the context they are given."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from evorun.fields import Checked, NonNegativeFloat, PositiveInt
from evorun.methods.context import Context, RunContext
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.base import Problem, Task
from evorun.tasks.capabilities import HasPublicTests
from evorun.training.wire import Objective

if TYPE_CHECKING:
    from evorun.methods.duels.stopping import StopSettings
    from evorun.ratings.bradley_terry import Posterior

Regime = Literal["problem_only", "demonstrations", "public_tests", "oracle", "labels"]
"""The information that a method has beside the problem (Duel-Evolve paper, section 4.2): `problem_only`, none;
`demonstrations`, solved problems; `public_tests`, a task's feedback; `labels`, the right answers to problems that it
learns from. `oracle`: a symbolic system that knows the right answer scores candidates during the search (Lyria paper,
section 4.1.4), or judges them."""
REGIMES: tuple[Regime, ...] = get_args(Regime)


@dataclass(kw_only=True)
class SamplingSettings(Checked):
    """Sampling of responses: part of the configuration of every method that generates responses."""

    section = "method"

    temperature: NonNegativeFloat
    top_p: Annotated[float, Meta(gt=0, le=1)]
    max_tokens: PositiveInt
    """Maximum completion tokens of a response."""

    @property
    def sampling(self) -> Sampling:
        """The sampling parameters of a response."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


@dataclass(kw_only=True)
class JudgeSettings(Checked):
    """Sampling of judgments: part of the configuration of every method whose judge compares responses."""

    section = "method"

    judge_temperature: NonNegativeFloat
    judge_max_tokens: PositiveInt

    @property
    def judge_sampling(self) -> Sampling:
        """The sampling parameters of a judgment."""
        return Sampling(temperature=self.judge_temperature, max_tokens=self.judge_max_tokens)


class Method(ABC):
    """An algorithm; its hyperparameters are the fields of `Config`, the schema of its YAML."""

    name: ClassVar[str]
    description: ClassVar[str]
    regime: ClassVar[Regime]
    needs: ClassVar[tuple[type, ...]]
    """The task protocols that it relies on."""
    roles: ClassVar[Mapping[str, Role]] = {}
    """The model role that answers each call role; the policy answers the call roles not listed. See `active_roles`."""
    observes: ClassVar[bool] = False
    """True when the method uses a task's feedback (public tests), where there is any."""
    requires_student: ClassVar[bool] = False
    """True when the method works only with a model that is fine-tuned before the run (`student=`)."""
    Config: ClassVar[type]
    trains: ClassVar[bool] = False
    """True when the method updates weights; then it has an `objective`, and its runs have the settings `training`."""
    learns_from_problems: ClassVar[bool] = False
    """True when the method receives the task's training split."""
    restarts: ClassVar[bool] = False
    """True when the weights begin anew with each problem of the run."""
    votes: ClassVar[bool] = False
    """True when the answer is the most frequent one among independent responses with equal votes."""
    plays_ahead: ClassVar[str | None] = None
    """The role of its rollouts, if it can play a step's rollouts during earlier updates (`training.max_lag`)."""
    config: Any = None
    """An instance of `Config`; subclasses may narrow the type."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @property
    def learns_from_rewards(self) -> bool:
        """True when updates learn from the rewards of rollouts, and not from data."""
        return self.learns_from_problems or self.restarts

    @property
    def records_training(self) -> bool:
        """True when its steps are training steps, and what it records of them (`RunContext.record`) is of these.

        By default, of a method that updates weights or learns from rewards. Others are searches.
        """
        return self.trains or self.learns_from_rewards

    @property
    def last_step(self) -> int | None:
        """Number of the last step, or an upper bound, by which displays estimate the time left; None if unknown.

        A method that updates weights gives the number itself.
        """
        return None

    @property
    def max_useful_lag(self) -> int | None:
        """Largest `training.max_lag` with which rollouts still see what is learned; None where it is not known yet."""
        return None

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        """Hyperparameters for which null means "until the budget ends"; without a budget they need a number."""
        return {}

    @property
    def rubric_settings(self) -> RubricSettings | None:
        """The settings of rubric rewards; None where no rubric gives the rewards."""
        return None

    @property
    def reward_source(self) -> str | None:
        """The plug-in that gives the rewards; None where none does."""
        return None

    @property
    def setting_that_shows_answers(self) -> str | None:
        """The setting by which a model is shown right answers to training problems; None where none is."""
        return None

    @property
    def asks_confidence(self) -> bool:
        """True when it asks the policy's engine for confidences (`Sampling.confidence`)."""
        return False

    @property
    def ends_early(self) -> bool:
        """True when the engine must also end completions whose confidence falls below a threshold."""
        return False

    @property
    def judge_sampling(self) -> Sampling | None:
        """The sampling parameters of a judgment; None for a method without duels."""
        return None

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> "Posterior":
        """Return the ratings of a problem's candidates by these duels between them alone; their `mean` decides.

        By default, the MAP of Bradley-Terry utilities with a prior of 1 logit, in which ties are no evidence.
        """
        from evorun.ratings import bradley_terry  # half a second for scipy, and the command line loads this module

        places = {candidate.id: place for place, candidate in enumerate(candidates)}
        ends = [(places[duel.first], places[duel.second], duel.outcome) for duel in duels if duel.outcome is not None]
        won = [first if outcome == "first" else second for first, second, outcome in ends]
        lost = [second if outcome == "first" else first for first, second, outcome in ends]
        return bradley_terry.fit(len(candidates), won, lost)

    @property
    def stop_settings(self) -> "StopSettings | None":
        """The settings by which a problem ends once its answer is surely the best; None where the method has none."""
        return None

    @property
    def transplants(self) -> bool:
        """True when, after the run, system prompts are tested under the weights of all evaluations."""
        return False

    @property
    def active_roles(self) -> Mapping[str, Role]:
        """The model role that answers each call role under these hyperparameters."""
        return self.roles

    def information_regime(self, task: type[Task]) -> Regime:
        """Return the information regime on a task: feedback turns `problem_only` into `public_tests`."""
        # Labels and demonstrations give more information than public tests, so those regimes stay.
        feedback = self.observes and issubclass(task, HasPublicTests)
        return "public_tests" if feedback and self.regime == "problem_only" else self.regime

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:  # noqa: B027 - most have nothing to check
        """Check settings against the validation split before a run begins. Raises ConfigError or DataError."""

    def fit_to(self, training_problems: int) -> str | None:
        """Set what depends on the number of training problems, before a run begins; return a line that says so."""
        return None

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        """Return a line for each thing that the method cannot do with `calls` per problem (None: no limit).

        judges: of the panel, each of which is asked in every duel.
        """
        return []

    def budget_obstacle(self, calls: int, judges: int = 1) -> str | None:
        """Return why these hyperparameters leave nothing to do within `calls` per problem; None when they do not.

        judges: as above. The reason is one line that names the keys.
        """
        return None

    def incompatibility(self, task: type[Task]) -> str | None:
        """Return why these hyperparameters do not work on an otherwise suitable task; None when they do.

        The reason is one line that says what is missing and what to set instead.
        """
        return None

    def make_objective(self, run: Path) -> Objective:
        """Return the trainer's objective; only for methods that train. run: the run directory, for data files.

        Raises DataError for unusable training data.
        """
        raise NotImplementedError

    def generators_obstacle(self, generators: int, task: type[Task]) -> str | None:
        """Return why these hyperparameters do not fit this number of generators on a task; None when they do.

        The reason is one line that names the key.
        """
        return None

    async def prepare(self, ctx: RunContext) -> None:  # noqa: B027 - most methods prepare nothing
        """Prepare the run once, before the first problem; all problems share the cost of its calls."""


class PerProblem(Method):
    """A method that solves each problem separately."""

    @abstractmethod
    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Work on the context's problem; yield after each step, ending when done or out of budget."""


class DatasetLevel(Method):
    """A method that works on all problems together, so that what it learns on one problem helps on others."""

    @abstractmethod
    def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Work on the run; yield the state of every problem after each step, by problem id."""

"""What a method is: an algorithm that touches nothing but the context it is given."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec
import numpy as np

from evorun.models.base import Reply, Request, Sampling
from evorun.runs.budget import Meter
from evorun.runs.records import write_json
from evorun.runs.schema import Outcome, Verdict
from evorun.runs.streams import call_seed, stream
from evorun.tasks.base import Demonstration, GivesFeedback, Grade, Problem, Prompt, Response, Task, Tools, Verification
from evorun.training.policy import Policy
from evorun.training.wire import FineTuning, PolicyGradient

T = TypeVar("T")

log = logging.getLogger("evorun")

Regime = Literal["problem_only", "demonstrations", "public_tests", "oracle", "labels"]
"""What a method gets to know beside the problem (Duel-Evolve paper, section 4.2). `oracle`: a symbolic system that
knows what is right scores candidates during the search (Lyria paper, section 4.1.4)."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What evolves: one response to a problem and where it came from."""

    id: str
    """Unique within its problem."""
    generation: int
    parents: tuple[str, ...]
    operator: str
    """`init`, `evolve`, ...: the step of the algorithm that made it."""
    response: Response
    attempts: int = 1
    """Model calls that it took to get this response."""
    call: str | None = None
    """Key of the model call that wrote it, in the run's journal; None for what no model wrote."""
    fitness: float | None = None
    """In [0, 100], where the method has one."""
    errors: str = ""
    """What an error detector said of it."""


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with the method's own belief in it."""

    candidate: Candidate
    mean: float | None
    """Posterior mean of its utility; None for one that the method could not rate."""
    sd: float | None
    survivor: bool
    """Whether the method still considers it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One duel: two candidates, judged once or in both orders."""

    first: str
    second: str
    verdicts: tuple[Verdict, ...]
    """As said by the judge: with `first` shown as A, then, when it was asked twice, with `first` shown as B."""
    outcome: Outcome | None
    """The winner, or None when the duel was not decisive."""
    reasons: tuple[str, ...]
    """The judge's explanations, one a verdict."""


class Step(msgspec.Struct, kw_only=True):
    """What a method reports after each step of its loop."""

    step: int
    best: Rated | None
    """The candidate that the method would return now; None while it has none that parses."""
    candidates: Sequence[Rated]
    """All candidates so far, with the beliefs after this step."""
    comparisons: Sequence[Comparison] = ()
    """The duels of this step."""
    extra: dict[str, float] = {}
    """Diagnostics of this step, by name."""
    samples: Sequence[Candidate] = ()
    """Candidates of this step that stand for what the model would say: the share of correct ones is its pass rate."""


EVALUATING = ("judge", "fitness", "errors")
"""Roles that the judge model plays where a run has one."""


class Caller(Protocol):
    """A model behind the journal."""

    async def complete(self, key: str, request: Request) -> Reply:
        """Answer the request that belongs to `key`."""
        ...


class Calls:
    """Random streams, a budget and model calls under one name: a problem's, or those that a method makes for all."""

    def __init__(self, *, name: str, task: Task, seed: int, meter: Meter, models: Mapping[str, Caller]) -> None:
        """`models` maps roles to models; the role `policy` serves every role that has none of its own."""
        self.name = name
        self.task: Any = task  # methods rely on the protocols that they declare in `needs`
        self._seed = seed
        self._meter = meter
        self._models = models
        self._places: set[tuple[int, str, int, int]] = set()

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random stream of this problem and these names."""
        return stream(self._seed, self.name, *names)

    @property
    def out_of_budget(self) -> bool:
        """Whether the budget has refused a call."""
        return self._meter.exhausted

    @property
    def calls_made(self) -> int:
        """Model calls so far, all roles together."""
        return self._meter.total.calls

    def affordable(self, calls: int, role: str) -> int:
        """Return how many of so many calls the budget still allows; fewer than asked marks it as exhausted."""
        return self._meter.admit(calls, role)

    def key(self, step: int, role: str, place: int, attempt: int) -> str:
        """Return the key under which the journal knows a call."""
        return "|".join((self.name, str(step), role, str(place), str(attempt)))

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        role: str,
        step: int,
        sampling: Sampling,
        attempt: int | Sequence[int] = 0,
        places: Sequence[int] | None = None,
        token_ids: bool = False,
    ) -> list[Reply]:
        """Put the prompts to the role's model all at once and return the replies, in order.

        When the budget does not allow them all, the first ones only. A call is known by its problem, step, role,
        place (in `prompts`, unless `places` gives others) and attempt (one for all, or each its own): the same call
        must have the same place on every repetition. token_ids: ask for the completions' token ids too.
        """
        model = self._model(role)
        allowed = self.affordable(len(prompts), role)
        attempts = [attempt] * allowed if isinstance(attempt, int) else attempt
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._call(model, prompt, sampling, (step, role, place, number), token_ids))
                for place, number, prompt in zip(
                    range(allowed) if places is None else places, attempts, prompts[:allowed], strict=False
                )
            ]
        replies = [call.result() for call in calls]
        for reply in replies:
            self._meter.charge(role, reply)
        return replies

    def _model(self, role: str) -> Caller:
        """Return the model of a role: evaluating is the judge's, and the policy serves where there is no other."""
        name = "judge" if role in EVALUATING else role
        return self._models.get(name, self._models["policy"])

    async def _call(
        self,
        model: Caller,
        prompt: Prompt,
        sampling: Sampling,
        place: tuple[int, str, int, int],
        token_ids: bool,
    ) -> Reply:
        if place in self._places:
            raise ValueError(f"the method makes two calls with the same step, role, place and attempt: {place}")
        self._places.add(place)
        request = Request(
            messages=prompt.messages,
            sampling=sampling,
            seed=call_seed(self._seed, self.name, *place),
            json_schema=prompt.json_schema,
            hints=prompt.hints,
            token_ids=token_ids,
        )
        return await model.complete(self.key(*place), request)


class Context(Calls):
    """All that a method can touch while it works on one problem."""

    def __init__(
        self,
        *,
        task: Task,
        problem: Problem,
        seed: int,
        meter: Meter,
        models: Mapping[str, Caller],
        tools: Tools,
    ) -> None:
        super().__init__(name=problem.id, task=task, seed=seed, meter=meter, models=models)
        self.problem = problem
        self._tools = tools

    async def observe(self, responses: Sequence[Response]) -> list[Response]:
        """Return the responses with the task's feedback on those that have an answer, where the task gives any."""
        if not isinstance(self.task, GivesFeedback):
            return list(responses)
        async with asyncio.TaskGroup() as group:
            observed = [group.create_task(self._observe(response)) for response in responses]
        return [one.result() for one in observed]

    async def verify(self, responses: Sequence[Response], max_errors: int) -> list[Verification]:
        """Return what the task's symbolic system says of the responses; the task must be one that verifies."""
        async with asyncio.TaskGroup() as group:
            verified = [
                group.create_task(self.task.verify(self.problem, response, max_errors, self._tools))
                for response in responses
            ]
        return [one.result() for one in verified]

    async def _observe(self, response: Response) -> Response:
        if response.answer is None:
            return response
        seen: Response = await self.task.observe(self.problem, response, self._tools)
        return seen


SHARED = "*"
"""Name of the calls that a method makes for all problems together."""


@dataclass(frozen=True)
class TrainingSplit:
    """The problems that a policy is trained on; none of them is a problem of the run."""

    task: Any
    """Of these problems: it makes their prompts and reads the responses."""
    problems: Sequence[Problem]
    grade: Callable[[Problem, Response], Awaitable[Grade]]


class Remember(Protocol):
    """Looks an effect up in the journal, or carries it out (`evorun.runs.effects.remembered`)."""

    async def __call__(self, key: str, about: Any, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return the result."""
        ...


class RunContext:
    """All that a method can touch beyond single problems: every problem, the validation split, its own calls."""

    def __init__(
        self,
        *,
        contexts: Mapping[str, Context],
        shared: Calls,
        demonstrations: Sequence[Demonstration],
        grade: Callable[[Demonstration, Response], Awaitable[Grade]],
        artifacts: Path,
        remember: Remember,
        record: Callable[[int, Mapping[str, float]], None],
        policy: Policy | None = None,
        training: TrainingSplit | None = None,
    ) -> None:
        """demonstrations: empty unless the method's regime allows for them. artifacts: the folder to leave files in.

        remember, record: see the methods of these names.
        """
        self.shared = shared
        self.demonstrations = demonstrations
        self._artifacts = artifacts
        self._contexts = contexts
        self._grade = grade
        self._remember = remember
        self._record = record
        self._policy = policy
        self._training = training

    @property
    def policy(self) -> Policy:
        """What is trained; for methods with an objective."""
        assert self._policy is not None  # noqa: S101 - the driver gives one to every method with an objective
        return self._policy

    @property
    def training(self) -> TrainingSplit:
        """The problems to train on; for methods that learn from problems."""
        assert self._training is not None  # noqa: S101 - the driver gives one to every method that asks for it
        return self._training

    async def remember(self, step: int, what: str, about: Any, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return a value that takes time to compute, such as a batch's rewards, from the journal where it is there.

        about: all that the value depends on, as JSON. kind: its type.
        """
        return await self._remember(self.shared.key(step, what, 0, 0), about, compute, kind)

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        """Put a training step's figures into training.jsonl, the series of metrics.jsonl and the progress display."""
        self._record(step, figures)

    @staticmethod
    def note(line: str) -> None:
        """Say something that the user should know, in the run's log and on the terminal."""
        log.warning(line)

    def leave(self, name: str, value: Any) -> None:
        """Leave a value as JSON in the run's artifacts/. Raises RunDirectoryError when it cannot be written."""
        self._artifacts.mkdir(exist_ok=True)
        write_json(self._artifacts / name, value)

    @property
    def problems(self) -> list[Problem]:
        """The problems of the run, in order."""
        return [ctx.problem for ctx in self._contexts.values()]

    def of(self, problem: Problem) -> Context:
        """Return the context of one problem of the run."""
        return self._contexts[problem.id]

    async def grade(self, demonstration: Demonstration, response: Response) -> Grade:
        """Grade a response to a problem of the validation split; problems of the run are graded by the driver only."""
        return await self._grade(demonstration, response)


class Method(ABC):
    """An algorithm; its hyperparameters are the fields of `Config`, the schema of its YAML."""

    name: ClassVar[str]
    description: ClassVar[str]
    regime: ClassVar[Regime]
    needs: ClassVar[tuple[type, ...]]
    """The task protocols that it relies on."""
    observes: ClassVar[bool] = False
    """Whether it looks at a task's feedback (public tests) where there is any."""
    of_student: ClassVar[bool] = False
    """Whether it is for a model that is fine-tuned before the run (`student=`) only."""
    Config: ClassVar[type]
    trains: ClassVar[bool] = False
    """Whether it updates weights: it then has an `objective`, and its runs the settings `training`."""
    learns_from_problems: ClassVar[bool] = False
    """Whether it is given the task's training split."""

    @property
    def last_step(self) -> int | None:
        """Number of the step after which the method ends, when that is known beforehand."""
        return None

    def regime_on(self, task: type[Task]) -> Regime:
        """Return what the method gets to know on a task: feedback makes `public_tests` of `problem_only`."""
        feedback = self.observes and issubclass(task, GivesFeedback)
        return "public_tests" if feedback and self.regime == "problem_only" else self.regime

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:  # noqa: B027 - most have nothing to check
        """Raise ConfigError or DataError for settings that the validation split does not allow, before a run begins."""

    def reservations(self, calls: int | None) -> list[str]:
        """Say, a line each, what the method leaves undone with so many calls a problem (None: no limit)."""
        return []

    def misfit(self, task: type[Task]) -> str | None:
        """Return why these hyperparameters cannot work on a task that the method suits otherwise; None when they can.

        One line that says what is missing and what to set instead.
        """
        return None

    def objective(self, run: Path) -> PolicyGradient | FineTuning:
        """Return what the trainer is told; for methods that train. `run`: the run directory, for files of data.

        Raises DataError for data that cannot be learned from.
        """
        raise NotImplementedError

    async def prepare(self, ctx: RunContext) -> None:  # noqa: B027 - most methods prepare nothing
        """Do what must be done once, before the first problem; its calls are shared by all problems."""


class PerProblem(Method):
    """A method that works on each problem by itself."""

    @abstractmethod
    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Work on the context's problem; yield after each step, ending when done or out of budget."""


class DatasetLevel(Method):
    """A method that works on all problems together: what it learns on one serves the others."""

    @abstractmethod
    def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Work on the run; yield after each step where every problem stands, by problem id."""

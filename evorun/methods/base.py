"""What a method is: an algorithm that touches nothing but the context it is given."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np

from evorun.models.base import Reply, Request, Sampling
from evorun.runs.budget import Meter
from evorun.runs.schema import Outcome, Verdict
from evorun.runs.streams import call_seed, stream
from evorun.tasks.base import Problem, Prompt, Response, Task

Regime = Literal["problem_only", "demonstrations", "public_tests", "labels"]
"""What a method gets to know beside the problem (Duel-Evolve paper, section 4.2)."""


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


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with the method's own belief in it."""

    candidate: Candidate
    mean: float | None
    """Posterior mean of its utility; None for one that the method could not rate."""
    sd: float | None
    survivor: bool
    """Whether the method still considers it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One duel: two candidates, judged in both orders."""

    first: str
    second: str
    verdicts: tuple[Verdict, Verdict]
    """As said by the judge: with `first` shown as A, then with `first` shown as B."""
    outcome: Outcome | None
    """The winner, or None when the duel was not decisive."""
    reasons: tuple[str, str] = ("", "")


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


class Caller(Protocol):
    """A model behind the journal."""

    async def complete(self, key: str, request: Request) -> Reply:
        """Answer the request that belongs to `key`."""
        ...


class Context:
    """All that a method can touch while it works on one problem."""

    def __init__(self, *, task: Task, problem: Problem, seed: int, meter: Meter, models: Mapping[str, Caller]) -> None:
        """`models` maps roles to models; the role `policy` serves every role that has none of its own."""
        self.task: Any = task  # methods rely on the protocols that they declare in `needs`
        self.problem = problem
        self._seed = seed
        self._meter = meter
        self._models = models
        self._places: set[tuple[int, str, int, int]] = set()

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random stream of this problem and these names."""
        return stream(self._seed, self.problem.id, *names)

    @property
    def out_of_budget(self) -> bool:
        """Whether the budget has refused a call."""
        return self._meter.exhausted

    def affordable(self, calls: int, role: str) -> int:
        """Return how many of so many calls the budget still allows; fewer than asked marks it as exhausted."""
        return self._meter.admit(calls, role)

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        role: str,
        step: int,
        sampling: Sampling,
        attempt: int = 0,
        places: Sequence[int] | None = None,
    ) -> list[Reply]:
        """Put the prompts to the role's model all at once and return the replies, in order.

        When the budget does not allow them all, the first ones only. A call is known by its problem, step, role,
        place (in `prompts`, unless `places` gives others) and attempt: the same call must have the same place on
        every repetition.
        """
        model = self._models.get(role, self._models["policy"])
        allowed = self.affordable(len(prompts), role)
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._call(model, prompt, sampling, (step, role, place, attempt)))
                for place, prompt in zip(places or range(allowed), prompts[:allowed], strict=False)
            ]
        replies = [call.result() for call in calls]
        for reply in replies:
            self._meter.charge(role, reply)
        return replies

    async def _call(self, model: Caller, prompt: Prompt, sampling: Sampling, place: tuple[int, str, int, int]) -> Reply:
        if place in self._places:
            raise ValueError(f"the method makes two calls with the same step, role, place and attempt: {place}")
        self._places.add(place)
        request = Request(
            messages=prompt.messages,
            sampling=sampling,
            seed=call_seed(self._seed, self.problem.id, *place),
            json_schema=prompt.json_schema,
            hints=prompt.hints,
        )
        return await model.complete("|".join((self.problem.id, *map(str, place))), request)


class Method(ABC):
    """An algorithm; its hyperparameters are the fields of `Config`, the schema of its YAML."""

    name: ClassVar[str]
    description: ClassVar[str]
    regime: ClassVar[Regime]
    needs: ClassVar[tuple[type, ...]]
    """The task protocols that it relies on."""
    Config: ClassVar[type]

    @property
    def last_step(self) -> int | None:
        """Number of the step after which the method ends, when that is known beforehand."""
        return None


class PerProblem(Method):
    """A method that works on each problem by itself."""

    @abstractmethod
    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Work on the context's problem; yield after each step, ending when done or out of budget."""

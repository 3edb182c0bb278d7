"""Model calls of a method: under a key and a role, within a budget, with separate random streams."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from evorun.models.base import Reply, Request, Sampling
from evorun.runs.budget import Meter
from evorun.runs.call_keys import CallKey
from evorun.runs.roles import GENERATE, GENERATORS, PANEL
from evorun.runs.streams import call_seed, stream
from evorun.tasks.base import Prompt, Task, Tools

T = TypeVar("T")


class Role(NamedTuple):
    """The model role that answers the calls of a call role."""

    model: str
    """policy: with the weights of a step. reference: the policy before training. judge, reward, meta, reflection,
    generator: separate models. judge.0, judge.1, ...: the judges of a panel; so with generators."""
    lag: int = 0
    """Steps by which the policy's weights lag behind the call's step. The step decides a call's weights, never the
    time: a call during the step's update uses the weights before it (1)."""


POLICY = Role("policy")
GENERATOR = "generator"
"""The model role of the models that write responses, for methods that may choose between several."""


class Caller(Protocol):
    """A model behind the journal."""

    def recorded(self, key: str, request: Request, step: int) -> Reply | None:
        """Return the journal's answer to the request that belongs to `key`, None where the call has to be made."""
        return None

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        """Answer the request that belongs to `key` with the weights of a step, where weights change."""
        ...


class _Call(NamedTuple):
    model: Caller
    key: str
    request: Request
    step: int


class Remember(Protocol):
    """`evorun.runs.journal.Journal.remember`, without its options."""

    async def __call__(self, key: str, inputs: bytes, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return the result."""
        ...


class Calls:
    """Random streams, a budget and model calls under one name: a problem's, or a method's for all problems."""

    def __init__(
        self,
        *,
        name: str,
        task: Task,
        seed: int,
        meter: Meter,
        models: Mapping[str, Caller],
        roles: Mapping[str, Role],
        remember: Remember,
        tools: Tools | None = None,
    ) -> None:
        """models: by model role. roles: the model role that answers each call role; by default the policy.

        tools: the run's, for tools that models use in episodes; None where no episodes are played.
        """
        self.name = name
        self.tools = tools
        self.task: Any = task  # methods rely on the protocols that they declare in `needs`
        self._seed = seed
        self._meter = meter
        self._models = models
        self._roles = roles
        self._remember = remember
        self._made: dict[tuple[int, str, int, int], int] = {}
        """The calls made: by step, role, attempt and 64 indices, one bit per call; a run makes more than a million."""

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random stream of this problem and these names."""
        return stream(self._seed, self.name, *names)

    @property
    def judges(self) -> list[str]:
        """The call roles of the judges: those of a panel, or `judge` alone."""
        return [role for role in self._roles if role.startswith(PANEL)] or ["judge"]

    @property
    def generators(self) -> list[str]:
        """The call roles of the generators, in the user's order: `generate.0`, ..., or `generate` alone.

        A call under one of them is answered by that model, and its cost is counted there.
        """
        return [role for role in self._roles if role.startswith(GENERATORS)] or [GENERATE]

    @property
    def out_of_budget(self) -> bool:
        """True once the budget has refused a call."""
        return self._meter.exhausted

    @property
    def calls_made(self) -> int:
        """Model calls so far, all roles together."""
        return self._meter.total.calls

    @property
    def calls_left(self) -> int | None:
        """Model calls that a limit on calls still allows, all roles together; None without one."""
        return self._meter.calls_left

    def mean_costs(self, roles: Sequence[str]) -> list[float]:
        """Return the mean cost of each role's calls so far, in one unit for all; 0 for a role without a call."""
        return self._meter.mean_costs(roles)

    def affordable(self, calls: int, role: str) -> int:
        """Return how many of the requested calls the budget still allows; fewer mark it as exhausted."""
        return self._meter.admit(calls, role)

    def calls_left_in_share(self, share: float, role: str) -> int | None:
        """Return how many more calls of a role fit into a share of the whole budget, whatever other roles spent.

        A limit on tokens or their price counts the mean cost of the role's calls so far; None while that is unknown.
        Raises ValueError without a budget.
        """
        return self._meter.calls_left_in_share(share, role)

    def key(self, step: int, role: str, index: int, attempt: int) -> str:
        """Return the key of a call in the journal."""
        return str(CallKey(self.name, step, role, index, attempt))

    def next_index(self, step: int, role: str) -> int:
        """Return the first index without a call of a step and role, after all that have one (without retries)."""
        block = 0
        while (step, role, 0, block + 1) in self._made:
            block += 1
        return 64 * block + self._made.get((step, role, 0, block), 0).bit_length()

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        role: str | Sequence[str],
        step: int,
        sampling: Sampling,
        attempt: int | Sequence[int] = 0,
        indices: Sequence[int] | None = None,
    ) -> list[Reply]:
        """Send all prompts to the role's model at once and return the replies, in order.

        When the budget does not allow all, send only the first. Problem, step, role, index (in `prompts`, unless
        `indices` differs) and attempt identify a call (role and attempt: one for all calls, or one per call): the same
        call must have the same index on every repetition.
        """
        roles = [role] * len(prompts) if isinstance(role, str) else role
        # Admitted in order and before any call, so that a resumed run cuts the same calls off.
        allowed = self.affordable(len(prompts), roles[0]) if prompts else 0
        attempts = [attempt] * allowed if isinstance(attempt, int) else attempt
        numbers = range(allowed) if indices is None else indices
        calls = [
            self._call((step, call_role, index, number), prompt, sampling)
            for call_role, index, number, prompt in zip(roles, numbers, attempts, prompts[:allowed], strict=False)
        ]
        # Recorded calls need no asyncio task.
        recorded = [call.model.recorded(call.key, call.request, call.step) for call in calls]
        async with asyncio.TaskGroup() as group:
            made = [
                group.create_task(call.model.complete(call.key, call.request, call.step))
                for call, reply in zip(calls, recorded, strict=True)
                if reply is None
            ]
        if not made:
            await asyncio.sleep(0)  # let the other problems and the records proceed, too
        answers = iter(made)
        replies = [next(answers).result() if reply is None else reply for reply in recorded]
        for call_role, reply in zip(roles, replies, strict=False):
            self._meter.charge(call_role, reply)
        return replies

    async def ask(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        role: str,
        step: int,
        index: int,
        attempt: int,
        learned: bool = False,
        seen: tuple[int, ...] | None = None,
    ) -> Reply:
        """Make one call that the budget has admitted (`affordable`), and that is not charged yet.

        learned: ask for token ids and their log-probabilities. seen: see `Request`.
        """
        call = self._call((step, role, index, attempt), prompt, sampling, learned, seen)
        return await call.model.complete(call.key, call.request, call.step)

    def _call(
        self,
        call: tuple[int, str, int, int],
        prompt: Prompt,
        sampling: Sampling,
        learned: bool = False,
        seen: tuple[int, ...] | None = None,
    ) -> "_Call":
        """Return a call (step, role, index, attempt). Raises ValueError where it was made before."""
        step, role, index, attempt = call
        # Two calls under one key would have one seed, and the journal would give the second the first one's reply.
        block, bit = (step, role, attempt, index // 64), 1 << index % 64
        made = self._made.get(block, 0)
        if made & bit:
            raise ValueError(f"the method makes two calls with the same step, role, index and attempt: {call}")
        self._made[block] = made | bit
        request = Request(
            messages=prompt.messages,
            sampling=sampling,
            seed=call_seed(self._seed, self.name, *call),
            json_schema=prompt.json_schema,
            hints=prompt.hints,
            token_ids=learned,
            logprobs=learned,
            seen=seen,
        )
        # The step decides the weights, never the time: a resumed run must ask the same model again.
        played = self._roles.get(role, POLICY)
        return _Call(self._models[played.model], self.key(*call), request, step - played.lag)

    def charge(self, role: str, replies: Iterable[Reply]) -> None:
        """Count calls, in an order that does not depend on their timing: seconds are sums of floats."""
        for reply in replies:
            self._meter.charge(role, reply)

    def charge_tools(self, role: str, calls: int) -> None:
        """Count tool calls of a role's turns."""
        self._meter.charge_tools(role, calls)

    async def remember(
        self,
        step: int,
        what: str,
        inputs: Any,
        compute: Callable[[], Awaitable[T]],
        kind: type[T],
        *,
        index: int = 0,
        attempt: int = 0,
    ) -> T:
        """Return a value that takes time to compute, such as a reward, from the journal where it is there.

        inputs: all that the value depends on; encoded as JSON. kind: its type.
        """
        encoded = msgspec.json.encode(inputs, order="deterministic")
        return await self._remember(self.key(step, what, index, attempt), encoded, compute, kind)

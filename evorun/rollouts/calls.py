"""Model calls of a method: under a key and a role, within a budget, with random streams of their own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from evorun.models.base import Reply, Request, Sampling
from evorun.runs.budget import Meter
from evorun.runs.streams import call_seed, stream
from evorun.tasks.base import Prompt, Task

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
        self._indices: set[tuple[int, str, int, int]] = set()

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

    def key(self, step: int, role: str, index: int, attempt: int) -> str:
        """Return the key under which the journal knows a call."""
        return "|".join((self.name, str(step), role, str(index), str(attempt)))

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        role: str,
        step: int,
        sampling: Sampling,
        attempt: int | Sequence[int] = 0,
        indices: Sequence[int] | None = None,
        token_ids: bool = False,
    ) -> list[Reply]:
        """Put the prompts to the role's model all at once and return the replies, in order.

        When the budget does not allow them all, the first ones only. A call is known by its problem, step, role,
        index (in `prompts`, unless `indices` gives others) and attempt (one for all, or each its own): the same call
        must have the same index on every repetition. token_ids: ask for the completions' token ids too.
        """
        model = self._model(role)
        allowed = self.affordable(len(prompts), role)
        attempts = [attempt] * allowed if isinstance(attempt, int) else attempt
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._call(model, prompt, sampling, (step, role, index, number), token_ids))
                for index, number, prompt in zip(
                    range(allowed) if indices is None else indices, attempts, prompts[:allowed], strict=False
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
        index: tuple[int, str, int, int],
        token_ids: bool,
    ) -> Reply:
        if index in self._indices:
            raise ValueError(f"the method makes two calls with the same step, role, index and attempt: {index}")
        self._indices.add(index)
        request = Request(
            messages=prompt.messages,
            sampling=sampling,
            seed=call_seed(self._seed, self.name, *index),
            json_schema=prompt.json_schema,
            hints=prompt.hints,
            token_ids=token_ids,
        )
        return await model.complete(self.key(*index), request)

"""The `simulated` engine: a task's simulator, which knows the answers and has a given skill, in place of weights."""

import asyncio
import contextlib
from dataclasses import dataclass

import numpy as np

from evorun.errors import EngineError, at_least
from evorun.models.base import Completion, LanguageModel, Reply, Request, rejected
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.simulator import Responder, Simulator, Skill

CHARACTERS_PER_TOKEN = 4
"""A common rule of thumb for English text, used to give simulated texts a length in tokens."""


@dataclass
class SimulatedConfig(Skill, EngineConfig):
    """Schema of `conf/engine/simulated.yaml`: a skill, and the latency of a server."""

    slots: int | None = None
    """Requests served at once; null: no limit."""
    seconds_per_token: float = 0.0
    """Latency of a served request for each of its completion tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("engine.slots", self.slots, 1)
        at_least("engine.seconds_per_token", self.seconds_per_token, 0)

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Refuse: a simulator comes from a task (`open_for`)."""
        raise EngineError("engine=simulated needs a task whose simulator it can use")

    def open_for(self, model: ModelConfig, simulator: Simulator) -> LanguageModel:
        """Return a model that answers with the simulator's texts. Raises EngineError when `model` has an adapter."""
        if model.adapter is not None:
            raise EngineError(
                "model.adapter: engine=simulated has no weights that an adapter could change; set model.adapter=null "
                "or use another engine"
            )
        answering = simulator.at_random() if model.random else simulator.with_skill(self)
        return SimulatedModel(model.id, answering, self.slots, self.seconds_per_token)


class SimulatedModel:
    """Serves a simulator's texts, with the latency of a server when one is given."""

    def __init__(
        self, name: str, simulator: Responder, slots: int | None = None, seconds_per_token: float = 0.0
    ) -> None:
        self.name = name
        self._simulator = simulator
        self._slots = contextlib.nullcontext() if slots is None else asyncio.Semaphore(slots)
        self._seconds_per_token = seconds_per_token

    async def complete(self, request: Request) -> Reply:
        """Return the simulator's texts; the same request always gets the same ones."""
        if request.token_ids:
            return rejected(request, "simulated texts have no token ids; use another engine to learn from completions")
        async with self._slots:
            return await self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        started = asyncio.get_running_loop().time()
        rng = np.random.Generator(np.random.PCG64(request.seed))
        limit = request.sampling.max_tokens
        completions = []
        for _ in range(request.sampling.n):
            text = self._simulator.respond(request, rng)
            tokens = len(text) // CHARACTERS_PER_TOKEN + 1
            if tokens <= limit:
                completions.append(Completion(text=text, finish_reason="stop", tokens=tokens))
            else:
                cut = text[: limit * CHARACTERS_PER_TOKEN]
                completions.append(Completion(text=cut, finish_reason="length", tokens=limit))
        if self._seconds_per_token:
            # The n completions of a request are decoded together: the longest one decides.
            await asyncio.sleep(self._seconds_per_token * max(c.tokens for c in completions))
        characters = sum(len(message["content"]) for message in request.messages)
        return Reply(
            completions=tuple(completions),
            prompt_tokens=characters // CHARACTERS_PER_TOKEN,
            seconds=asyncio.get_running_loop().time() - started,
        )

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

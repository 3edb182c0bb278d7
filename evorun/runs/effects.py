"""Model calls through the journal: a call that was recorded is answered from there, any other is made and recorded."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from evorun.errors import EngineError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.encoding import encode_request, request_digest
from evorun.runs.journal import Effect, Journal

_REPLY = msgspec.json.Decoder(Reply)

T = TypeVar("T")


@dataclass
class Traffic:
    """Calls and tokens since the start of this process, for the progress display."""

    calls: int = 0
    completion_tokens: int = 0
    replayed: int = 0


REFUSALS_AT_FIRST = 20
"""So many refusals without a single answer mean that the engine's settings are wrong, not the requests (ours)."""


class JournaledModel:
    """A language model behind a journal."""

    def __init__(self, model: LanguageModel, journal: Journal, traffic: Traffic) -> None:
        self.model = model
        self._journal = journal
        self._traffic = traffic
        self._has_answered = False
        self._refusals: list[Effect] = []
        """Kept out of the journal until the engine has answered something: a resumed run must ask these again."""

    async def complete(self, key: str, request: Request) -> Reply:
        """Answer the request that belongs to `key`. Raises EngineError, JournalError or RunDirectoryError."""
        body = encode_request(self.model.name, request)
        digest = request_digest(body)
        recorded = self._journal.get(key, digest)
        if recorded is not None:
            self._traffic.replayed += 1
            return _REPLY.decode(recorded)
        reply = await self.model.complete(request)
        usage = f'{{"prompt_tokens":{reply.prompt_tokens},"completion_tokens":{reply.completion_tokens}}}'
        await self._record(Effect(key, digest, body, msgspec.json.encode(reply), usage, reply.seconds), reply.error)
        self._traffic.calls += 1
        self._traffic.completion_tokens += reply.completion_tokens
        return reply

    async def _record(self, effect: Effect, refusal: str | None) -> None:
        if self._has_answered:
            return await self._journal.put(effect)
        if refusal is not None:
            self._refusals.append(effect)
            if len(self._refusals) >= REFUSALS_AT_FIRST:
                raise EngineError(
                    f"model '{self.model.name}': the engine refused the first {REFUSALS_AT_FIRST} requests, the last "
                    f"one with: {refusal}; check the model and the engine's settings"
                )
            return None
        self._has_answered = True
        await self.finish()
        return await self._journal.put(effect)

    async def finish(self) -> None:
        """Record what has been kept back: a run that has ended without one answer is complete all the same."""
        kept, self._refusals = self._refusals, []
        await asyncio.gather(*(self._journal.put(effect) for effect in kept))


def journaled(engines: Mapping[str, LanguageModel], journal: Journal, traffic: Traffic) -> dict[str, JournaledModel]:
    """Put each engine behind the journal once, whatever roles it plays: that it has answered holds for all of them."""
    by_engine = {id(engine): JournaledModel(engine, journal, traffic) for engine in engines.values()}
    return {role: by_engine[id(engine)] for role, engine in engines.items()}


async def remembered(
    journal: Journal, key: str, about: Any, compute: Callable[[], Awaitable[T]], type_of_result: type[T]
) -> T:
    """Return the recorded result of an effect that is no model call, or carry it out and record it.

    about: what the result depends on, as JSON. Raises JournalError when the key was recorded for something else.
    """
    body = msgspec.json.encode(about, order="deterministic")
    digest = blake2b(body, digest_size=16).digest()
    recorded = journal.get(key, digest)
    if recorded is None:
        started = time.perf_counter()
        recorded = msgspec.json.encode(await compute())
        await journal.put(Effect(key, digest, body, recorded, None, time.perf_counter() - started))
    return msgspec.json.decode(recorded, type=type_of_result)

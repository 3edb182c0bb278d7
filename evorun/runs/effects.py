"""Model calls through the journal: a recorded call is answered from it; any other is made and recorded."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from evorun.errors import EngineError
from evorun.models.base import CONTROL, LanguageModel, Reply, Request, Trained, cut_long_texts, round_logprobs
from evorun.models.encoding import encode_request
from evorun.models.lazy import LazyModel
from evorun.runs.budget import Usage
from evorun.runs.call_keys import read_role
from evorun.runs.journal import Journal
from evorun.runs.journal_file import Effect
from evorun.runs.replay import RecordedRun
from evorun.runs.sequential import SequentialTokens
from evorun.runs.stopwatch import Stopwatch
from evorun.runs.tool_answers import TOOLS, ToolAnswer, count_tool_calls

T = TypeVar("T")


@dataclass
class Traffic:
    """Calls and tokens since the start of this process, for the progress display; sequential tokens, for results."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replayed: int = 0
    tool_calls: int = 0
    replayed_tool_calls: int = 0
    cost: defaultdict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    """By role, with those of recorded answers: the run's cost so far, once it has asked for all of them again."""
    in_flight: Counter[str] = field(default_factory=Counter)
    """Calls that are waiting for their answer, by role."""
    first_answer: float | None = None
    """The moment of the first answer that was not recorded before (`time.monotonic`)."""
    sequential: SequentialTokens = field(default_factory=SequentialTokens)
    """Of recorded answers, too: a resumed run asks for each of them again, and for no others that its journal holds."""
    stopwatch: Stopwatch | None = None
    """Of a run that trains a real model."""

    def count(self, key: str, reply: Reply) -> None:
        """Count an answer to the call under a key."""
        if self.first_answer is None:
            self.first_answer = time.monotonic()
        self.calls += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        self._add_cost(key, reply)

    def count_replayed(self, key: str, reply: Reply) -> None:
        """Count an answer that this run's journal held already."""
        self.replayed += 1
        self._add_cost(key, reply)

    def count_tools(self, key: str, calls: int, *, replayed: bool) -> None:
        """Count the tool calls under a key. replayed: this run's journal held what the tools said."""
        if replayed:
            self.replayed_tool_calls += calls
        else:
            self.tool_calls += calls
        self.cost[read_role(key).removesuffix(TOOLS)].tool_calls += calls

    def _add_cost(self, key: str, reply: Reply) -> None:
        spent = self.cost[read_role(key)]
        spent.calls += 1
        spent.prompt_tokens += reply.prompt_tokens
        spent.completion_tokens += reply.completion_tokens
        spent.cached_tokens += reply.cached_tokens or 0


async def remember_counted(
    journal: Journal, traffic: Traffic, key: str, inputs: bytes, compute: Callable[[], Awaitable[T]], kind: type[T]
) -> T:
    """Return an effect's result as `Journal.remember` does, and count the tool calls of one of tools."""
    replayed = key in journal
    result = await journal.remember(key, inputs, compute, kind)
    if isinstance(result, list) and kind == list[ToolAnswer]:
        traffic.count_tools(key, count_tool_calls(result), replayed=replayed)
    return result


MAX_INITIAL_REFUSALS = 20
"""If this many refusals precede the first answer, the engine's settings are wrong, not the requests (ours)."""


class JournaledModel:
    """A language model behind a journal; a model that the run trains answers with the weights of each step."""

    def __init__(
        self, model: LanguageModel | Trained, journal: Journal, traffic: Traffic, *, replayed: bool = False
    ) -> None:
        """replayed: another run's journal answers, so this run's journal records nothing."""
        self.model = model
        self._replayed = replayed
        # checked once: the check takes longer than all else that a recorded call needs
        self._at: Callable[[int], LanguageModel] = model.at if isinstance(model, Trained) else lambda step: model
        self._trained = isinstance(model, Trained)
        self._journal = journal
        self._traffic = traffic
        self._has_answered = False
        self._answered_before = False
        """True once the journal has returned an earlier process's answer."""
        self._refusals: list[Effect] = []
        """Kept out of the journal until the engine has answered something: a resumed run must ask these again."""

    def recorded(self, key: str, request: Request, step: int = 0) -> Reply | None:
        """Return the recorded answer to a request; None where the call has not been made. Raises JournalError."""
        if key not in self._journal:
            return self._replay(key, request, step) if self._replayed else None
        reply = self._journal.recall(key, encode_request(self._at(step).name, request), Reply, once=True)
        if reply is not None:
            self._traffic.count_replayed(key, reply)
            self._traffic.sequential.add(key, reply.completion_tokens)
            self._answered_before |= reply.error is None
        return reply

    def _replay(self, key: str, request: Request, step: int) -> Reply | None:
        """Return the recording's answer; None while the recording is not open."""
        model = self._at(step)
        engine = model.opened if isinstance(model, LazyModel) else model
        if not isinstance(engine, RecordedRun):
            return None
        reply = engine.reply(request)
        self._traffic.count(key, reply)
        self._traffic.sequential.add(key, reply.completion_tokens)
        return reply

    async def complete(self, key: str, request: Request, step: int = 0, *, once: bool = True) -> Reply:
        """Answer the request recorded under `key`, with the weights of a step.

        once: this process asks for the key only once; see `Journal.remember`. Raises EngineError, JournalError or
        RunDirectoryError.
        """
        if once and (recorded := self.recorded(key, request, step)) is not None:
            return recorded
        model = self._at(step)
        role = read_role(key)

        async def ask() -> Reply:
            self._traffic.in_flight[role] += 1
            try:
                with self._timed():
                    reply = round_logprobs(cut_long_texts(await model.complete(request), request))
            finally:
                self._traffic.in_flight[role] -= 1
            self._traffic.count(key, reply)
            if self._trained and (stopwatch := self._stopwatch()) is not None:
                prefilled = reply.prompt_tokens - (reply.cached_tokens or 0)
                stopwatch.add(prefilled=prefilled, decoded=reply.completion_tokens)
            return reply

        if self._replayed:
            reply = await ask()
        else:
            about = encode_request(model.name, request)
            reply = await self._journal.remember(key, about, ask, Reply, record=self._record, once=once)
        self._traffic.sequential.add(key, reply.completion_tokens)
        return reply

    def _timed(self) -> AbstractContextManager[None]:
        stopwatch = self._stopwatch()
        return nullcontext() if stopwatch is None else stopwatch.during("generation" if self._trained else "judging")

    def _stopwatch(self) -> Stopwatch | None:
        """Return what measures a training run's speed; None where another run's journal answers."""
        return None if self._replayed else self._traffic.stopwatch

    async def _record(self, effect: Effect, reply: Reply) -> None:
        """Record a call, or hold it back while the engine has only refused."""
        cached = f',"cached_tokens":{reply.cached_tokens}' if reply.cached_tokens else ""
        usage = f'{{"prompt_tokens":{reply.prompt_tokens},"completion_tokens":{reply.completion_tokens}{cached}}}'
        # the model's seconds, not those of a look-up in a replayed run
        effect = effect._replace(usage=usage, seconds=reply.seconds)
        # The only calls left to a resumed run may always fail; then an answered control request shows that the settings
        # work.
        answered = reply.error is None or (self._answered_before and CONTROL in (reply.wasted or {}))
        if not self._has_answered and not answered:
            self._refusals.append(effect)
            if len(self._refusals) >= MAX_INITIAL_REFUSALS:
                raise EngineError(
                    f"model '{self.model.name}': the engine refused the first {MAX_INITIAL_REFUSALS} requests, "
                    f"the last with: {reply.error}; check the model and the engine's settings"
                )
            return
        if not self._has_answered:
            self._has_answered = True
            await self.finish()
        await self._journal.put(effect)

    async def finish(self) -> None:
        """Record the refusals held back: a run that ended without any answer is complete all the same."""
        held_back, self._refusals = self._refusals, []
        await asyncio.gather(*(self._journal.put(effect) for effect in held_back))


def journal_engines(
    engines: Mapping[str, LanguageModel | Trained], journal: Journal, traffic: Traffic, replayed: Container[str] = ()
) -> dict[str, JournaledModel]:
    """Wrap each engine in the journal, once for all its roles: an answer in any role shows that its settings work.

    replayed: roles that another run's journal answers.
    """
    by_engine = {
        id(engine): JournaledModel(engine, journal, traffic, replayed=role in replayed)
        for role, engine in engines.items()
    }
    return {role: by_engine[id(engine)] for role, engine in engines.items()}

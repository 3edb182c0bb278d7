"""The gold judge: a model that grades responses to a task graded by opinion; no method can ask it."""

import math
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import msgspec

from evorun.errors import ConfigError
from evorun.models.base import Reply, Request, Sampling
from evorun.runs.budget import Usage
from evorun.runs.call_keys import CallKey
from evorun.runs.candidates import SHARED
from evorun.runs.journal_file import digest_request
from evorun.runs.spending import GOLD
from evorun.runs.streams import call_seed
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.tasks.base import Prompt, Tools

T = TypeVar("T")

MAX_TOKENS = 1024
"""Completion tokens per opinion, unless the task sets a limit (ours): reasons for some ten criteria, and the points."""


class Judge(Protocol):
    """A model, behind the journal of a run or by itself."""

    async def complete(self, key: str, request: Request, *, once: bool) -> Reply:
        """Answer the request recorded under `key`; once=False allows asking for the same key again."""
        ...


class GraderTools:
    """The tools of graders: programs in the sandbox, and the gold judge behind the journal.

    A call's key is a digest of its prompt, as for programs: two candidates with the same text share a call.
    """

    def __init__(self, tools: Tools, model: Judge, seed: int, max_tokens: int | None = None) -> None:
        """tools: run the programs. seed: of the run. max_tokens: per opinion; None means `MAX_TOKENS`."""
        self._tools = tools
        self._model = model
        self._seed = seed
        self._max_tokens = max_tokens or MAX_TOKENS
        self._asked: set[str] = set()
        self._usage = Usage()
        self._seconds: list[float] = []

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        return await self._tools.test(program, suite, stop_at_failure=stop_at_failure)

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        return await self._tools.remember(about, compute, kind)

    async def judge(self, prompt: Prompt, attempt: int = 0) -> str | None:
        digest = digest_request(msgspec.json.encode((prompt.messages, self._max_tokens))).hex()
        key = str(CallKey(SHARED, 0, GOLD, digest, attempt))
        request = Request(
            messages=prompt.messages,
            # Greedy first; after an unreadable reply, sample: greedy decoding would only repeat it.
            sampling=Sampling(temperature=1.0 if attempt else 0.0, max_tokens=self._max_tokens),
            seed=call_seed(self._seed, GOLD, digest, attempt),
            json_schema=prompt.json_schema,
            hints=prompt.hints,
        )
        reply = await self._model.complete(key, request, once=False)
        if key not in self._asked:
            self._asked.add(key)
            refused = int(reply.error is not None)
            self._usage.add(Usage(1, reply.prompt_tokens, reply.completion_tokens, refused=refused))
            self._usage.add_wasted(reply.wasted or {})
            self._seconds.append(reply.seconds)
        if reply.error is not None or reply.completions[0].truncated:
            return None
        return reply.completions[0].text

    @property
    def spent(self) -> Usage | None:
        """The cost of all opinions, which counts against no method's budget; None without any."""
        if not self._asked:
            return None
        # An exact sum: the order in which answers arrive differs from run to run.
        return msgspec.structs.replace(self._usage, seconds=math.fsum(self._seconds))


class MethodTools:
    """The tools that a method may use: programs alone, no gold judge."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        return await self._tools.test(program, suite, stop_at_failure=stop_at_failure)

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        return await self._tools.remember(about, compute, kind)

    async def judge(self, prompt: Prompt, attempt: int = 0) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(
            "the method asks for grades, but the task's grade is the gold judge's opinion, which is kept for results; "
            "expected a reward by a rubric (method=ppo method.rubric=initial, or method=mpo), or another task"
        )

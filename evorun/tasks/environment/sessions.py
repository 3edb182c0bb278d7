"""Live episodes of environments, found again by the turns that led to them.

An environment's answer is a function of a problem and of all turns so far. A live episode is only a short cut: without
one, as in a resumed run, an environment is reset and the turns are played again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from evorun.errors import ToolError
from evorun.tasks.environment.base import Environment
from evorun.tasks.tool_calls import ToolCall, read_calls

MAX_ATTEMPTS = 5
"""Attempts at an episode whose environment fails (ours)."""
BACKOFF = 0.1
"""Seconds before the second attempt, doubled before each further one (ours)."""


class Outcome(NamedTuple):
    """The result of an episode's turns."""

    results: tuple[str, ...]
    """Of the last turn's calls."""
    done: bool
    reward: float | None


class Sessions:
    """Environments of a run, at most so many at once."""

    def __init__(self, make: Callable[[], Environment], max_environments: int, skipped: Container[str] = ()) -> None:
        """make: a new environment. max_environments: at once; idle ones are closed first.

        skipped: names of tools that are not the environment's; their calls have an empty result.
        """
        self._make = make
        self._skipped = skipped
        self._max_environments = max_environments
        self._idle: OrderedDict[tuple[str, ...], list[Environment]] = OrderedDict()
        self._live = 0
        """Environments in use or idle."""
        self._slots: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def play(self, name: str, row: Mapping[str, Any], turns: Sequence[str], *, last: bool) -> Outcome:
        """Play the turns of a problem's episode and return the outcome.

        last: nothing follows these turns, so that the environment is closed. Raises ToolError where the environment
        fails in each attempt.
        """
        self._follow_loop()
        assert self._slots is not None  # noqa: S101 - made with the loop
        async with self._slots:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    return await self._play(name, row, turns, last=last)
                except ToolError:
                    if attempt == MAX_ATTEMPTS:
                        raise
                await asyncio.sleep(BACKOFF * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    async def _play(self, name: str, row: Mapping[str, Any], turns: Sequence[str], *, last: bool) -> Outcome:
        environment = self._take((name, *turns[:-1]))
        begun = len(turns) - 1 if environment else 0
        if environment is None:
            self._live += 1
            await self._close_idle()
            environment = self._make()
        kept = False
        try:
            if not begun:
                await environment.reset(row)
            results: list[str] = []
            for turn in turns[begun:]:
                results = [
                    "" if asked.name in self._skipped else await call(environment, asked)
                    for asked in read_calls(turn)
                    if not environment.done
                ]
            outcome = Outcome(tuple(results), environment.done, await environment.reward())
            kept = not (last or environment.done)
        finally:
            if kept:
                self._idle.setdefault((name, *turns), []).append(environment)
            else:
                await environment.close()
                self._live -= 1
        return outcome

    def _take(self, key: tuple[str, ...]) -> Environment | None:
        if key not in self._idle:
            return None
        found = self._idle[key].pop()
        if not self._idle[key]:
            del self._idle[key]
        return found

    async def _close_idle(self) -> None:
        """Close the oldest idle environments where there are too many."""
        while self._live > self._max_environments and self._idle:
            environment = self._take(next(iter(self._idle)))
            if environment is not None:
                await environment.close()
            self._live -= 1

    def _follow_loop(self) -> None:
        # Connections belong to the event loop that opened them.
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._slots = loop, asyncio.Semaphore(self._max_environments)
            self._idle.clear()
            self._live = 0


async def call(environment: Environment, asked: ToolCall) -> str:
    """Return the result of a call, or why it could not be made."""
    if asked.error:
        return f"error: {asked.error}"
    return await environment.call(asked.name, asked.arguments)

"""A sandbox that opens on the first program: a run whose verdicts are all recorded opens none."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.pool import Sandbox
from evorun.sandbox.testing import test

T = TypeVar("T")


class LazySandbox:
    """Opens its sandbox once, on the first test. If that fails, every later test fails with the same error."""

    def __init__(self, config: SandboxConfig, private: Sequence[Path] = ()) -> None:
        self._config = config
        self._private = private
        self._sandbox: asyncio.Task[Sandbox] | None = None

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        """Run a program on a suite's cases; see `evorun.sandbox.testing.test`. Raises SandboxError."""
        if self._sandbox is None:
            self._sandbox = asyncio.create_task(Sandbox.open(self._config, self._private))
        # Shielded: cancelling one test must not cancel the opening, for which all tests wait.
        return await test(await asyncio.shield(self._sandbox), program, suite, stop_at_failure)

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Do a grader's work: without a run there is nothing to remember it by."""
        return await compute()

    async def close(self) -> None:
        """Close the sandbox if it was opened; idempotent."""
        opening, self._sandbox = self._sandbox, None
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.exception():
                await opening.result().close()

"""The sandbox: a pool of zygotes, one for each program that may run at once."""

import asyncio
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from evorun.errors import SandboxError
from evorun.sandbox.base import Execution, Limits, Program
from evorun.sandbox.cgroups import parent_of_groups
from evorun.sandbox.check import find_breach
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.inside.scratch import remove
from evorun.sandbox.launch import NEEDS, Launch, launches
from evorun.sandbox.zygotes import NoAnswer, Zygote, ZygoteLost

_HARMLESS = Limits(wall_seconds=60.0)


class Sandbox:
    """Runs programs, `slots` of them at a time, in the event loop that it was opened in."""

    isolation: str
    """bubblewrap | namespaces | gvisor | rlimits"""
    fully_isolated: bool
    """No network, no files but the interpreter's, nothing left behind."""
    note: str
    """Names what is not shielded, in one line; empty when fully isolated."""
    slots: int
    """Programs at a time."""
    large_comparison: asyncio.Lock
    """Held while a large output is compared: values in JSON may take hundreds of MiB, once and not in each slot."""

    memory_groups: bool
    """The kernel counts all that programs hold, in a cgroup for each slot."""

    def __init__(
        self, launch: Launch, slots: int, first: Zygote, scratch: str | None, groups: Path | None = None
    ) -> None:
        self.isolation, self.fully_isolated, self.note = launch.isolation, launch.full, launch.note
        self.slots = slots
        self.large_comparison = asyncio.Lock()
        self.memory_groups = groups is not None
        self._launch, self._groups = launch, groups
        self._scratch = scratch
        self._free = asyncio.Semaphore(slots)
        self._one_alone = asyncio.Lock()
        self._idle = [first]
        self._busy: set[Zygote] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def open(cls, config: SandboxConfig, private: Sequence[Path] = ()) -> "Sandbox":
        """Open the best isolation that the configuration allows and a trial program cannot escape.

        private: files and folders (a run's, a task's data) that programs must not see under full isolation; home, the
        working folder and $EVORUN_DATA are among them anyway. Raises SandboxError when there is none.
        """
        slots = config.slots or len(os.sched_getaffinity(0))
        failures: list[str] = []
        hangs: set[str] = set()
        groups = parent_of_groups()
        for launch in launches(config):
            if launch.isolation in hangs:  # a second try would cost START_SECONDS again
                continue
            scratch = None
            if not launch.full:
                # Without mounts of their own, programs share a folder of this machine, each with a subfolder.
                scratch = tempfile.mkdtemp(prefix="evorun-sandbox-")
                os.chmod(scratch, 0o711)  # noqa: S103 - each program may pass through to its own
                launch = dataclasses.replace(launch, settings={**launch.settings, "scratch_parent": scratch})
            try:
                first = await _tried(launch, private, groups)
            except SandboxError as error:
                failures.append(str(error))
                if isinstance(error, NoAnswer):
                    hangs.add(launch.isolation)
                _remove(scratch)
                continue
            except BaseException:
                _remove(scratch)
                raise
            return cls(launch, slots, first, scratch, groups)
        program, remedy = NEEDS.get(config.isolation, NEEDS["auto"])
        found = "; ".join(dict.fromkeys(failures)) or f"{program} is not installed"
        raise SandboxError(f"sandbox.isolation={config.isolation}: {found}{remedy}")

    async def run(self, program: Program, stdin: str, limits: Limits) -> Execution:
        """Run a program on an input; the execution says how it ended, whatever it does.

        Cancelling kills the program. Raises SandboxError when the machine lets no program run to its end, or when the
        sandbox is closed.
        """
        async with self._free:
            with contextlib.suppress(ZygoteLost):
                return await self._run_once(program, stdin, limits)
            with contextlib.suppress(ZygoteLost):
                return await self._run_once(program, stdin, limits, fresh=True)
        # A loss may be the machine's doing (memory ran out, a signal), and then it is no result of the program's: that
        # takes a third loss, while no other program runs and one that does nothing wrong has just run.
        async with self._alone():
            try:
                await self._run_once(Program(""), "", _HARMLESS, fresh=True)
            except ZygoteLost as lost:
                raise SandboxError(f"programs cannot run here, not even one that does nothing: {lost}") from None
            try:
                return await self._run_once(program, stdin, limits)
            except ZygoteLost as lost:
                why = f"[its process, or that of the sandbox, was ended from outside, three times: {lost}]\n"
                return Execution(
                    end="runtime_error",
                    stdout="",
                    stderr=why,
                    value=None,
                    exit_code=None,
                    signal=None,
                    cpu_seconds=0.0,
                    wall_seconds=0.0,
                )

    async def close(self) -> None:
        """Kill running programs and end all zygotes; waiting runs raise SandboxError. Idempotent."""
        self._closed = True
        await asyncio.gather(*(zygote.stop() for zygote in self._busy))
        async with self._alone():  # no run is in the middle of starting a zygote
            await asyncio.gather(*(zygote.stop() for zygote in self._idle), *self._ending)
            self._idle.clear()
            _remove(self._scratch)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Wait until no program runs, and let none start meanwhile. Not to be called from within a slot."""
        async with self._one_alone, contextlib.AsyncExitStack() as held:
            for _ in range(self.slots):
                await held.enter_async_context(self._free)
            yield

    async def _run_once(self, program: Program, stdin: str, limits: Limits, fresh: bool = False) -> Execution:
        """Run a program on an idle zygote or, with `fresh`, a new one. Raises ZygoteLost."""
        self._refuse_when_closed()
        if fresh and self._idle:
            self._end(self._idle.pop())
        zygote = self._idle.pop() if self._idle and not fresh else await Zygote.start(self._launch, self._groups)
        self._busy.add(zygote)
        try:
            self._refuse_when_closed()
            execution = await zygote.run(program, stdin, limits)
        except BaseException:
            self._end(zygote)
            raise
        finally:
            self._busy.discard(zygote)
        self._idle.append(zygote)
        return execution

    def _end(self, zygote: Zygote) -> None:
        # A task of its own: a cancelled run cannot wait for the end, but `close` can.
        task = asyncio.ensure_future(zygote.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed: open another one")


async def _tried(launch: Launch, private: Sequence[Path], groups: Path | None) -> Zygote:
    """Start a zygote and have a program look for a way out. Raises SandboxError when it finds one."""
    zygote = await Zygote.start(launch, groups)
    try:
        breach = await find_breach(zygote, launch, private)
    except ZygoteLost as lost:
        breach = str(lost)
    except BaseException:
        await zygote.kill()
        raise
    if breach:
        await zygote.kill()
        raise SandboxError(f"{launch.isolation} does not work here: {breach}")
    return zygote


def _remove(folder: str | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):
            remove(folder)

"""The sandbox: a pool of zygotes, one per program that may run at once."""

import asyncio
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from evorun.errors import SandboxError
from evorun.sandbox.base import Execution, Limits, Program
from evorun.sandbox.cgroups import find_parent_group
from evorun.sandbox.check import find_breach
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.inside.scratch import remove
from evorun.sandbox.launch import NEEDS, Launch, list_launches
from evorun.sandbox.zygotes import NoAnswer, Zygote, ZygoteLost

_HARMLESS = Limits(wall_seconds=60.0)


class Sandbox:
    """Runs programs, `slots` at a time, in the event loop that opened it."""

    isolation: str
    """bubblewrap | namespaces | gvisor | rlimits"""
    fully_isolated: bool
    """No network, no files but the interpreter's, nothing left behind."""
    note: str
    """One line on what is not shielded; empty when fully isolated."""
    slots: int
    """Programs that run at once."""
    large_comparison: asyncio.Lock
    """Held while a large output is compared: JSON values may take hundreds of MiB, so slots take turns."""

    memory_groups: bool
    """True: the kernel counts all memory of programs, in one cgroup per slot."""

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
        self._exclusive_lock = asyncio.Lock()
        self._idle = [first]
        self._busy: set[Zygote] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def open(cls, config: SandboxConfig, private: Sequence[Path] = ()) -> "Sandbox":
        """Open the best isolation that the configuration allows and a trial program cannot escape.

        private: files and folders (a run's, a task's data) that programs must not see under full isolation. The home
        folder, the working folder and $EVORUN_DATA are always among them. Raises SandboxError if no isolation works.
        """
        slots = config.slots or len(os.sched_getaffinity(0))
        failures: list[str] = []
        hangs: set[str] = set()
        groups = find_parent_group()
        for launch in list_launches(config):
            if launch.isolation in hangs:  # a second try would cost START_SECONDS again
                continue
            scratch = None
            if not launch.full:
                # Without separate mounts, programs share a folder of this machine, each with a subfolder.
                scratch = tempfile.mkdtemp(prefix="evorun-sandbox-")
                os.chmod(scratch, 0o711)  # noqa: S103 - each program must reach its subfolder
                launch = dataclasses.replace(launch, settings={**launch.settings, "scratch_parent": scratch})
            try:
                first = await _start_and_check(launch, private, groups)
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
        """Run a program on an input and return the execution, however the program ends.

        Cancelling kills the program. Raises SandboxError when no program can finish on this machine, or when the
        sandbox is closed.
        """
        async with self._free:
            with contextlib.suppress(ZygoteLost):
                return await self._run_once(program, stdin, limits)
            with contextlib.suppress(ZygoteLost):
                return await self._run_once(program, stdin, limits, fresh=True)
        # The machine may have caused the loss (memory ran out, a signal). It counts as the program's result only after
        # a third loss, with no other program running and a harmless one just completed.
        async with self._nothing_running():
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
        """Kill running programs and end all zygotes. Waiting runs raise SandboxError. Idempotent."""
        self._closed = True
        await asyncio.gather(*(zygote.stop() for zygote in self._busy))
        async with self._nothing_running():  # no run is in the middle of starting a zygote
            await asyncio.gather(*(zygote.stop() for zygote in self._idle), *self._ending)
            self._idle.clear()
            _remove(self._scratch)

    @contextlib.asynccontextmanager
    async def _nothing_running(self) -> AsyncIterator[None]:
        """Wait until no program runs, and let none start until the block ends. Never call it from within a slot."""
        async with self._exclusive_lock, contextlib.AsyncExitStack() as held:
            for _ in range(self.slots):
                await held.enter_async_context(self._free)
            yield

    async def _run_once(self, program: Program, stdin: str, limits: Limits, fresh: bool = False) -> Execution:
        """Run a program on an idle zygote, or on a new one with `fresh`. Raises ZygoteLost."""
        self._require_open()
        if fresh and self._idle:
            self._end(self._idle.pop())
        zygote = self._idle.pop() if self._idle and not fresh else await Zygote.start(self._launch, self._groups)
        self._busy.add(zygote)
        try:
            self._require_open()
            execution = await zygote.run(program, stdin, limits)
        except BaseException:
            self._end(zygote)
            raise
        finally:
            self._busy.discard(zygote)
        self._idle.append(zygote)
        return execution

    def _end(self, zygote: Zygote) -> None:
        # In a separate task: a cancelled run cannot wait for the end, but `close` can.
        task = asyncio.ensure_future(zygote.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _require_open(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed: open another one")


async def _start_and_check(launch: Launch, private: Sequence[Path], groups: Path | None) -> Zygote:
    """Start a zygote and let the trial program look for a way out. Raises SandboxError if it finds one."""
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

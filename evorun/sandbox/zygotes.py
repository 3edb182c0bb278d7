"""The client side of a zygote: starts it, asks it to run programs, and ends it."""

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import SandboxError
from evorun.sandbox.base import End, Execution, Limits, Program
from evorun.sandbox.cgroups import MemoryGroup, make_memory_group
from evorun.sandbox.exchange import Exchange, SharedFiles, Stream, read_answer
from evorun.sandbox.launch import Launch

START_SECONDS = 20.0
"""Time for an interpreter to start on a busy machine (ours)."""
_PRELOAD_SECONDS = 180.0
"""Further time for the modules that it imports before programs run (ours)."""
_PATIENCE = 4  # equals inside.supervisor.PATIENCE; that module is for the other side, so it is not imported
# Time for an answer after a program's wall-clock limit; after that the zygote counts as hung (ours).
_GRACE_SECONDS = 30.0


class NoAnswer(SandboxError):
    """The isolation's program hangs, so any other launch with it would hang too."""


class ZygoteLost(Exception):
    """The zygote died or hung, or another process killed its program, so the program has no result."""


class Zygote:
    """An isolated warm interpreter and its supervisor. Runs one program at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        exchange: Exchange,
        files: contextlib.ExitStack,
        group: MemoryGroup | None,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._exchange = exchange
        self._files = files
        self._group = group

    @classmethod
    async def start(cls, launch: Launch, groups: Path | None = None) -> "Zygote":
        """Start a zygote, in a memory cgroup below `groups` if given, and wait until it is ready.

        Raises SandboxError with its last message if it fails to start, NoAnswer after START_SECONDS without an answer.
        """
        ours, theirs = socket.socketpair()
        files = contextlib.ExitStack()
        process: asyncio.subprocess.Process | None = None
        try:
            # A file, not a pipe, which somebody would have to read while the zygote writes.
            errors = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the zygote
            group = make_memory_group(groups) if groups else None
            if group:
                files.callback(group.remove)
            with theirs:
                command = launch.make_command(theirs.fileno(), files)
                process = await asyncio.create_subprocess_exec(
                    *(group.wrap_command(command) if group else command),
                    stdin=theirs.fileno() if launch.in_container else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=errors,
                    cwd="/",
                    env={"PYTHONHASHSEED": "0"},
                    start_new_session=True,  # Ctrl-C in the terminal reaches only us, and `_kill` ends the whole group
                    pass_fds=(theirs.fileno(),),
                )
            reader, writer = await asyncio.open_connection(sock=ours)
            exchange = Stream(reader, writer) if launch.in_container else SharedFiles(ours, reader, files)
            zygote = cls(process, reader, writer, exchange, files, group)
        except BaseException as error:
            ours.close()
            if process is not None:
                _kill(process)
                await process.wait()
            files.close()
            if isinstance(error, OSError):
                raise SandboxError(f"{launch.isolation} does not work here: {error}") from None
            raise
        try:
            await zygote._boot(launch)
        except BaseException as error:
            said = _last_line(errors)
            await zygote.kill()
            if isinstance(error, TimeoutError):
                said = said or f"no answer in {START_SECONDS:g} s"
                raise NoAnswer(f"{launch.isolation} does not work here: {said}") from None
            if isinstance(error, (EOFError, OSError)):
                raise SandboxError(f"{launch.isolation} does not work here: {said or error}") from None
            raise
        return zygote

    async def _boot(self, launch: Launch) -> None:
        message = msgspec.json.encode(launch.boot_message())
        self._writer.write(len(message).to_bytes(4, "big") + message)
        preload = _PRELOAD_SECONDS if launch.settings["preload"] else 0.0
        async with asyncio.timeout(START_SECONDS + preload):
            await read_answer(self._reader)
        self._exchange.begin()

    async def run(self, program: Program, stdin: str, limits: Limits) -> Execution:
        """Run a program. Raises ZygoteLost. After that, or when cancelled, call only `kill` or `stop`."""
        texts = (program.source, program.entry or "", stdin)
        source, entry, given = (text.encode("utf-8", "surrogatepass") for text in texts)
        arguments, typed = (given, b"") if program.entry else (b"", given)
        wall = limits.wall_limit()
        request = msgspec.json.encode(
            {
                "limits": {**msgspec.structs.asdict(limits), "wall_seconds": wall},
                "lengths": [len(source), len(entry), len(arguments)],
            }
        )
        try:
            if self._group:
                self._group.limit((limits.memory_mib + limits.file_mib << 20) + (limits.output_kib << 10))
                kills = self._group.kills()
            self._exchange.ask(request, source + entry + arguments, typed)
            async with asyncio.timeout(_PATIENCE * wall + _GRACE_SECONDS):
                answer, written = await self._exchange.receive()
            if self._group and self._group.kills() > kills:
                answer["reason"] = answer["reason"] or "memory"
        except (OSError, EOFError, TimeoutError) as error:
            raise ZygoteLost(f"no answer: {error!r}") from None
        return _execution(program, limits, answer, written)

    async def kill(self) -> None:
        """Kill the zygote and the program that it runs."""
        _kill(self._process)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await self._process.wait()
        self._files.close()

    async def stop(self) -> None:
        """Let the zygote end after the program that it runs; kill it after 2 s."""
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._process.wait()
        await self.kill()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process and its children: it leads a session and thus a process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # process.kill() may take the exit status away from asyncio


def _last_line(errors: Any) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _execution(program: Program, limits: Limits, answer: dict[str, Any], texts: list[bytes]) -> Execution:
    if "failed" in answer and not answer["reason"]:
        raise ZygoteLost(answer["failed"])
    code, cpu_seconds = answer["code"], answer["cpu_seconds"]
    # for example by the kernel when memory runs out, or by a scheduler that signals all processes of a job
    outside = code in (-signal.SIGKILL, -signal.SIGTERM)
    if outside and not answer["reason"] and cpu_seconds <= limits.cpu_seconds:
        raise ZygoteLost("the program was killed from outside")
    stdout, stderr, message = texts
    end, reason = _end(answer["reason"], code, cpu_seconds, limits, message)
    value = None
    if end == "completed" and program.entry is not None and message[:1] == b"v":
        value = message[1:].decode("utf-8", "replace")
    shown = stderr.decode("utf-8", "replace")
    return Execution(
        end=end,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=f"{shown}[{reason}]\n" if reason else shown,
        value=value,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        cpu_seconds=cpu_seconds,
        wall_seconds=answer["wall_seconds"],
    )


def _end(reason: str, code: int, cpu_seconds: float, limits: Limits, message: bytes) -> tuple[End, str]:
    """Return an execution's end, and the reason in words if the program's output does not give it."""
    if reason == "output":
        return "output_limit", f"more than {limits.output_kib} KiB of output"
    if reason == "wall":
        return "time_limit", f"more than {limits.wall_limit():g} s of wall time"
    if reason == "cpu" or cpu_seconds > limits.cpu_seconds:
        return "time_limit", f"more than {limits.cpu_seconds:g} s of CPU time"
    if reason == "memory" or message == b"m":
        return "memory_limit", f"more than {limits.memory_mib} MiB of memory"
    if reason == "processes":
        return "runtime_error", f"more than {limits.processes} processes and threads"
    if reason == "files":
        return "runtime_error", f"more than {limits.file_mib} MiB in files, or too many of them"
    if code < 0:
        return "runtime_error", f"ended by signal {-code}"
    return ("runtime_error", "") if code > 0 else ("completed", "")

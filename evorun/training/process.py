"""The run's side of the trainer process: starts it, sends it commands over a socket, and ends it.

The processes of one node are children of the run. Those of several nodes are started by agents (`nodes`).
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from evorun.errors import EvorunError, TrainingError
from evorun.training.failures import Evidence
from evorun.training.launching import command_line, environment, open_log
from evorun.training.layout import lay_out
from evorun.training.nodes import Nodes
from evorun.training.ranks import read_statuses, write_position
from evorun.training.requirements import require_packages
from evorun.training.tcp import listen
from evorun.training.wire import (
    LENGTH,
    Answer,
    Called,
    Command,
    EngineCall,
    Failed,
    Finish,
    Job,
    Ready,
    Send,
    Started,
    decode_answer,
    frame,
)

LOG = "trainer.log"
"""File in the run directory with the output of the trainer process."""

ENDING_S = 30
"""Seconds for a trainer process to end by itself. `ours`."""

LOOKS = 20
"""Looks at a rank without progress before it counts as hanging. `ours`."""

LAST_WORDS_S = 2.0
"""Seconds for what a trainer has sent before its end to arrive. `ours`."""


class Launched(Protocol):
    """The processes of a trainer."""

    async def start(self, job: Job, link_port: int) -> None:
        """Start them. link_port: where the run listens to the first one, if that is not the job's Unix socket."""
        ...

    async def ended(self) -> None:
        """Return when a process has ended otherwise than asked, or in any way if all are one."""
        ...

    async def wait(self) -> int:
        """Return an exit code when all processes have ended."""
        ...

    async def gather(self, *, stacks: bool = False) -> None:
        """Bring the files about all ranks into the evidence's folder. stacks: also where each rank is."""
        ...

    def explain_loss(self) -> EvorunError | None:
        """Return the error for a node that is gone, None without one."""
        ...

    def describe_joined(self) -> str:
        """Say which nodes have joined; empty for one node."""
        ...

    async def close(self, patience_s: float) -> None:
        """End all processes, by force if they do not end by themselves in time."""
        ...


class OneNode:
    """The processes of a trainer on the run's own node: one, or what has launched several."""

    def __init__(self, folder: Path, evidence: Evidence) -> None:
        """folder: of the evidence, for the job's file too."""
        self._folder = folder
        self._evidence = evidence
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, job: Job, link_port: int) -> None:
        file = self._folder / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        with open_log(job) as output:
            # In a new session, since the run handles Ctrl-C. The trainer's stdin closes when the run ends, in any way.
            self._process = await asyncio.create_subprocess_exec(
                *command_line(job, file),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment(job.training.devices),
                start_new_session=True,
            )

    async def ended(self) -> None:
        await self.wait()

    async def wait(self) -> int:
        assert self._process is not None  # noqa: S101 - started
        return await self._process.wait()

    async def gather(self, *, stacks: bool = False) -> None:
        for status in read_statuses(self._folder) if stacks else ():
            await asyncio.to_thread(write_position, self._folder, status)

    def explain_loss(self) -> None:
        return None

    def describe_joined(self) -> str:
        return ""

    async def close(self, patience_s: float) -> None:
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), patience_s)
        except TimeoutError:
            # A launcher's child processes are not in its group; they end when their stdin closes, unless they hang.
            if self._process.stdin is not None:
                self._process.stdin.close()
            for kill, number in [(os.killpg, self._process.pid), *((os.kill, pid) for pid in self._evidence.pids())]:
                with contextlib.suppress(ProcessLookupError):
                    kill(number, signal.SIGKILL)
            await self._process.wait()


class TrainerProcess:
    """A running trainer. Takes one command at a time; `close` ends it."""

    def __init__(self, launched: Launched, evidence: Evidence, folder: Path, hang_timeout: float | None) -> None:
        self._launched = launched
        self._evidence = evidence
        self._folder = folder
        self._hang_timeout = hang_timeout
        self._ended: asyncio.Task[None] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answered = False
        self._turn = asyncio.Lock()
        self.trainable = 0
        """Number of trained parameters."""

    @classmethod
    async def start(cls, job: Job, log: Path) -> "TrainerProcess":
        """Start the process (or `training.num_processes` of them) and wait until it has loaded everything.

        job: this method fills in its socket. Raises TrainingError with one line if the process cannot start.
        """
        require_packages(job.training)
        layout, timeout = lay_out(job.training), job.training.start_timeout
        several = [share.node for share in layout] != [0]
        # Not in the run directory: the path of a Unix socket may have at most 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="evorun-"))
        connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        connected = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if connected.done():  # another process, or one that comes after the trainer's end
                writer.close()
            else:
                connected.set_result((reader, writer))

        evidence = Evidence(folder, log, job.training.processes, len(layout))
        launched: Launched = Nodes(layout, folder, evidence) if several else OneNode(folder, evidence)
        trainer = cls(launched, evidence, folder, job.training.hang_timeout)
        secret = secrets.token_hex(32) if several else ""
        job = _fill_in(job, folder, log, secret)
        server = await (listen(secret, accept) if several else asyncio.start_unix_server(accept, job.socket))
        try:
            async with asyncio.timeout(timeout) as limit:
                await launched.start(job, int(server.sockets[0].getsockname()[1]) if several else 0)
                answer = await trainer._begin(connected)
                if isinstance(answer, Started):
                    limit.reschedule(None)
                    answer = await trainer._receive()
            if isinstance(answer, Ready):
                trainer.trainable = answer.trainable
        except BaseException as error:
            late = isinstance(error, TimeoutError) and limit.expired()
            if late:
                await launched.gather()
                error = evidence.explain_start(timeout or 0.0, launched.describe_joined())
            await trainer.close()
            raise error from None
        finally:
            server.close()
        return trainer

    async def ask(self, command: Command) -> Answer:
        """Return the answer to a command.

        Raises TrainingError if the trainer fails or has ended, ConfigError if the same settings will always fail.
        """
        async with self._turn:
            if self._writer is None:
                raise TrainingError("the trainer process has ended")
            self._answered = False
            try:
                self._writer.write(frame(command))
                await self._writer.drain()
            except OSError:
                raise await self._broken() from None
            return await self._receive()

    async def send(self, command: Send, call: Callable[[str, Mapping[str, Any]], Awaitable[None]]) -> None:
        """Let the trainer send weights. call: carries out a step of the engine's.

        Raises what `call` and `ask` raise; the trainer, which would wait for the engine for ever, then counts as ended.
        """
        answer = await self.ask(command)
        while isinstance(answer, EngineCall):
            try:
                await call(answer.step, answer.payload)
            except BaseException:
                self._hang_up()
                raise
            answer = await self.ask(Called())

    def pids(self) -> list[int]:
        """Return the ids of the ranks' processes, as their nodes know them."""
        return self._evidence.pids()

    async def close(self) -> None:
        """End the process, by force if it is busy or does not answer, and remove its socket; idempotent."""
        # During a command, it would read the request to finish only minutes later.
        listens = self._writer is not None and self._answered
        if listens:
            with contextlib.suppress(OSError, TrainingError, TimeoutError):
                await asyncio.wait_for(self.ask(Finish()), ENDING_S)
        self._hang_up()
        if self._ended is not None:
            self._ended.cancel()
        await self._launched.close(ENDING_S if listens else 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _begin(self, connected: "asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]") -> Answer:
        """Return the first process's first message."""
        self._ended = asyncio.create_task(self._launched.ended())
        await self._watch(connected, hangs=False)
        self._reader, self._writer = connected.result()
        return await self._receive(hangs=False)

    async def _receive(self, *, hangs: bool = True) -> Answer:
        """Return the next message. hangs: as in `_watch`."""
        assert self._reader is not None  # noqa: S101 - set before anything is asked
        receiving = asyncio.ensure_future(self._read_answer(self._reader))
        try:
            await self._watch(receiving, hangs=hangs)
            answer = receiving.result()
        except (asyncio.IncompleteReadError, OSError):
            raise await self._broken() from None
        finally:
            receiving.cancel()
        self._answered = True
        if isinstance(answer, Failed):
            self._hang_up()
            raise self._evidence.explain_exception(answer) or await self._broken()
        return answer

    @staticmethod
    async def _read_answer(reader: asyncio.StreamReader) -> Answer:
        size = int(LENGTH.unpack(await reader.readexactly(LENGTH.size))[0])
        answer: Answer = decode_answer(await reader.readexactly(size))
        return answer

    async def _watch(self, waited_for: "asyncio.Future[Any]", *, hangs: bool) -> None:
        """Wait for this. Raises TrainingError if the trainer ends.

        hangs: raise it, too, if no rank makes progress in the meantime; while they start, another limit holds.
        """
        assert self._ended is not None  # noqa: S101 - set at the start
        still, seen = 0, self._evidence.progress()
        timeout = self._hang_timeout if hangs else None
        pause = None if timeout is None else timeout / LOOKS
        either: set[asyncio.Future[Any]] = {waited_for, self._ended}
        while not (await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED))[0]:
            await self._launched.gather()
            before, seen = seen, self._evidence.progress()
            still = still + 1 if seen == before else 0
            if still == LOOKS and timeout is not None:
                self._hang_up()
                await self._launched.gather(stacks=True)
                raise self._evidence.explain_hang(timeout)
        if not waited_for.done():
            # It may have sent its last answer; an end of its connection is one, too.
            await asyncio.wait({waited_for}, timeout=LAST_WORDS_S if self._reader is not None else 0)
            if not waited_for.done():
                waited_for.cancel()  # hang up on a process that connects only now, too: it would wait for a command
                raise await self._broken()

    async def _broken(self) -> EvorunError:
        """Return the error for a process that ended without an answer, or only noticed that another one had ended."""
        self._hang_up()
        try:
            code = await asyncio.wait_for(self._launched.wait(), ENDING_S)
        except TimeoutError:  # torchrun waits for ranks that do not end
            code = 1
        await self._launched.gather()
        return self._evidence.explain_end(code, self._launched.explain_loss())

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _fill_in(job: Job, folder: Path, log: Path, secret: str) -> Job:
    return msgspec.structs.replace(job, socket=str(folder / "socket"), secret=secret, log=str(log.absolute()))

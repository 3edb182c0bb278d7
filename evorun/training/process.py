"""The run's side of the trainer process: starts it, sends it commands over a socket, and ends it."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import ConfigError, TrainingError
from evorun.models.devices import device_environment
from evorun.models.keys import child_environment
from evorun.training.requirements import require_packages
from evorun.training.wire import LENGTH, Answer, Command, Failed, Finish, Job, Ready, decode_answer, frame

LOG = "trainer.log"
"""File in the run directory with the output of the trainer process."""

ENDING_S = 30
"""Seconds for a trainer process to end by itself. `ours`."""

WORKER = "evorun.training.worker"

_HUB_VARIABLES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Environment variables that the trainer needs to download weights; proxies may need passwords."""

NO_TELEMETRY = {"HF_HUB_DISABLE_TELEMETRY": "1"}
"""Keeps TRL's trainers from reporting their use to the hub.

Their thread looks the hub's address up, which reads the environment, while accelerate clears and restores it; now and
then, that ended the process with a segmentation fault.
"""


class TrainerProcess:
    """A running trainer. Takes one command at a time; `close` ends it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, folder: Path) -> None:
        self._process = process
        self._log = log
        self._folder = folder
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
        require_packages()
        # Not in the run directory: the path of a Unix socket may have at most 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="evorun-"))
        job = msgspec.structs.replace(job, socket=str(folder / "socket"))
        file = folder / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        connected = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set_result((reader, writer))

        server = await asyncio.start_unix_server(accept, job.socket)
        with log.open("ab") as output:
            # In a new session, since the run handles Ctrl-C. The trainer's stdin closes when the run ends, in any way.
            process = await asyncio.create_subprocess_exec(
                *command_line(job, file),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=child_environment(keep=_HUB_VARIABLES)
                | NO_TELEMETRY
                | device_environment("training.devices", job.training.devices),
                start_new_session=True,
            )
        trainer = cls(process, log, folder)
        try:
            await trainer._begin(connected)
        except BaseException:
            await trainer.close()
            raise
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

    async def close(self) -> None:
        """End the process, by force if it is busy or does not answer, and remove its socket; idempotent."""
        # During a command, it would read the request to finish only minutes later.
        listens = self._writer is not None and self._answered
        if listens:
            with contextlib.suppress(OSError, TrainingError, TimeoutError):
                await asyncio.wait_for(self.ask(Finish()), ENDING_S)
        self._hang_up()
        try:
            await asyncio.wait_for(self._process.wait(), ENDING_S if listens else 0)
        except TimeoutError:
            # A launcher's child processes are not in its group; they end when their stdin closes.
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _begin(self, connected: "asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]") -> None:
        ended = asyncio.create_task(self._process.wait())
        either: set[asyncio.Future[Any]] = {connected, ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not connected.done():
            raise await self._broken()
        ended.cancel()
        self._reader, self._writer = connected.result()
        ready = await self._receive()
        if isinstance(ready, Ready):
            self.trainable = ready.trainable

    async def _receive(self) -> Answer:
        assert self._reader is not None  # noqa: S101 - set before anything is asked
        try:
            size = int(LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0])
            answer: Answer = decode_answer(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise await self._broken() from None
        self._answered = True
        if isinstance(answer, Failed):
            self._hang_up()
            if answer.of_settings:
                raise ConfigError(answer.reason)
            raise TrainingError(f"the trainer failed: {answer.reason}")
        return answer

    async def _broken(self) -> TrainingError:
        """Return the error for a process that ended without an answer."""
        self._hang_up()
        code = await self._process.wait()
        last = ""
        with contextlib.suppress(OSError):
            if lines := self._log.read_text(errors="replace").strip().splitlines():
                last = f", the last one: {lines[-1].strip()[:300]}"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        # SIGKILL, which the kernel sends when memory runs out; a shell or a launcher reports it as 137.
        killed = code in (-9, 137)
        hint = "often too little memory: lower training.micro_batch or micro_batch_tokens; " if killed else ""
        return TrainingError(f"the trainer process {how}: {hint}its messages are in {self._log.name}{last}")

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def command_line(job: Job, file: Path) -> list[str]:
    """Return the command that starts the trainer process or processes on the job in `file`."""
    training, worker = job.training, ["-m", WORKER, str(file)]
    if training.num_processes == 1 and training.accelerate_config is None:
        return [sys.executable, *worker]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(training.num_processes)]
    if training.accelerate_config is not None:
        launch += ["--config_file", str(Path(training.accelerate_config).expanduser())]
    else:
        launch += ["--multi_gpu"]  # means several processes, on CPUs too: with --cpu accelerate starts one
        launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        launch += ["--main_process_port", "0"]  # any free port, so that several runs can train on one machine
    return [*launch, *worker]

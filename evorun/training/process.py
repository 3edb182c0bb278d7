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

from evorun.errors import EvorunError, TrainingError
from evorun.models.devices import device_environment
from evorun.models.keys import child_environment
from evorun.training.failures import Evidence
from evorun.training.requirements import require_packages
from evorun.training.wire import LENGTH, Answer, Command, Failed, Finish, Job, Ready, decode_answer, frame

LOG = "trainer.log"
"""File in the run directory with the output of the trainer process."""

ENDING_S = 30
"""Seconds for a trainer process to end by itself. `ours`."""

LOOKS = 20
"""Looks at a rank without progress before it counts as hanging. `ours`."""

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

    def __init__(
        self, process: asyncio.subprocess.Process, evidence: Evidence, folder: Path, hang_timeout: float | None
    ) -> None:
        self._process = process
        self._evidence = evidence
        self._folder = folder
        self._hang_timeout = hang_timeout
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
        job = msgspec.structs.replace(job, socket=str(folder / "socket"), log=str(log))
        file = folder / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        connected = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set_result((reader, writer))

        evidence = Evidence(folder, log, job.training.processes)
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
        trainer = cls(process, evidence, folder, job.training.hang_timeout)
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
            # A launcher's child processes are not in its group; they end when their stdin closes, unless they hang.
            if self._process.stdin is not None:
                self._process.stdin.close()
            for kill, number in [(os.killpg, self._process.pid), *((os.kill, pid) for pid in self._evidence.pids())]:
                with contextlib.suppress(ProcessLookupError):
                    kill(number, signal.SIGKILL)
            await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _begin(self, connected: "asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]") -> None:
        ended = asyncio.create_task(self._process.wait())
        either: set[asyncio.Future[Any]] = {connected, ended}
        await self._watch(either)
        if not connected.done():
            raise await self._broken()
        ended.cancel()
        self._reader, self._writer = connected.result()
        ready = await self._receive()
        if isinstance(ready, Ready):
            self.trainable = ready.trainable

    async def _receive(self) -> Answer:
        assert self._reader is not None  # noqa: S101 - set before anything is asked
        receiving = asyncio.ensure_future(self._read_answer(self._reader))
        try:
            await self._watch({receiving})
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

    async def _watch(self, waited_for: "set[asyncio.Future[Any]]") -> None:
        """Wait for any of these. Raises TrainingError if no rank makes progress in the meantime."""
        still, seen = 0, self._evidence.progress()
        pause = None if self._hang_timeout is None else self._hang_timeout / LOOKS
        while not (await asyncio.wait(waited_for, timeout=pause, return_when=asyncio.FIRST_COMPLETED))[0]:
            before, seen = seen, self._evidence.progress()
            still = still + 1 if seen == before else 0
            if still == LOOKS and self._hang_timeout is not None:
                self._hang_up()
                raise await asyncio.to_thread(self._evidence.explain_hang, self._hang_timeout)

    async def _broken(self) -> EvorunError:
        """Return the error for a process that ended without an answer, or only noticed that another one had ended."""
        self._hang_up()
        try:
            code = await asyncio.wait_for(self._process.wait(), ENDING_S)
        except TimeoutError:  # torchrun waits for ranks that do not end
            code = 1
        return self._evidence.explain_end(code)

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def command_line(job: Job, file: Path) -> list[str]:
    """Return the command that starts the trainer process or processes on the job in `file`."""
    training, worker = job.training, ["-m", WORKER, str(file)]
    if training.processes == 1 and training.accelerate_config is None:
        return [sys.executable, *worker]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(training.processes)]
    if training.accelerate_config is not None:
        launch += ["--config_file", str(Path(training.accelerate_config).expanduser())]
    else:
        launch += ["--multi_gpu"]  # means several processes, on CPUs too: with --cpu accelerate starts one
        launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        launch += ["--main_process_port", "0"]  # any free port, so that several runs can train on one machine
    return [*launch, *worker]

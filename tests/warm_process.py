"""Processes as forks of one, which has imported what takes each of them seconds: the program, and its trainers.

A fork is a process like any other: in a session of its own, with the streams, the environment and the end that
whoever started it gives it. Programs that need another environment are started as ever, and trainers under `accelerate
launch` unless a test wants them forked.
"""

import asyncio
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from evorun.training.launching import WORKER

TRAINERS = ("policy_gradient", "proximal_policy", "fine_tuning", "rollouts", "versions", "weights")
IMPORTED = (
    *(f"evorun.training.{module}" for module in TRAINERS),
    *("transformers.models.llama.modeling_llama", "evorun.models.transformers.engine", "evorun.simulation.engine"),
    *("evorun.cli.launch", "evorun.cli.running", "evorun.cli.verbs", "evorun.runner.experiment"),
    *("evorun.reports.html", "evorun.reports.summary", "matplotlib.figure", "matplotlib.backends.backend_svg"),
    *("evorun.methods.duels.duel_evolve", "evorun.tasks.mathbench.mathbench", "jinja2", "building"),
    "evorun.api.child",
)
CODE = struct.Struct("!i")
ORDER = 65_536
"""Bytes of the longest order: its arguments and its environment."""
CHILD = "evorun.api.child"
"""Module of the process of a run that Python has started."""
JOB = "evorun.cli.local_job"
"""Module of the process of a job under `hydra/launcher=local`."""
LAUNCH = "accelerate.commands.launch"
ELASTIC = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
ADDRESS = "EVORUN_TESTS_WARM"
"""Environment variable with the socket of the process that is forked."""


class Forked:
    """A forked process: as much of `subprocess.Popen` as tests use."""

    def __init__(self, pid: int, link: socket.socket, stdout: Any, stdin: Any = None, stderr: Any = None) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._link = link
        self._lock = threading.Lock()  # one thread may wait while another sends signals

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            with self._lock:
                if self.returncode is None:
                    with self._link:
                        self.returncode = int(CODE.unpack(self._link.recv(CODE.size))[0])
        return self.returncode

    def communicate(self) -> tuple[Any, None]:
        said = self.stdout.read() if self.stdout is not None else None
        self.wait()
        return said, None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedTrainer:
    """A run's trainer: as much of `asyncio.subprocess.Process` as the run uses."""

    def __init__(self, pid: int, link: socket.socket, stdin: Any) -> None:
        self.pid = pid
        self.stdin = stdin
        link.setblocking(False)
        self._ended = asyncio.create_task(self._code(link))

    @staticmethod
    async def _code(link: socket.socket) -> int:
        with link:
            return int(CODE.unpack(await asyncio.get_running_loop().sock_recv(link, CODE.size))[0])

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def is_there() -> bool:
    """Return whether there is a process to fork."""
    return ADDRESS in os.environ


def fork(
    target: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    streams: Sequence[int],
    *,
    drawn: bool = True,
) -> tuple[int, socket.socket]:
    """Have a process forked; return its id, and what its exit code comes by.

    target: `evorun`, the module of a trainer or of a run from Python, or a script's path. streams: its stdin, stdout
    and stderr, and of a run from Python what its events go to, whose number is the first argument. drawn: with figures
    on the pages of reports.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(os.environ[ADDRESS])
    what = {"target": target, "arguments": list(arguments), "environment": dict(environment), "folder": folder}
    what["drawn"] = drawn
    order = json.dumps(what).encode()
    assert len(order) < ORDER
    socket.send_fds(link, [order], list(streams))
    return CODE.unpack(link.recv(CODE.size))[0], link


@contextlib.contextmanager
def forked_trainers(*, launched: bool = False) -> Iterator[None]:
    """Have the trainers of this process's runs forked; with `launched`, `accelerate launch` and what it starts, too."""
    start = asyncio.create_subprocess_exec
    targets = {(sys.executable, "-m", WORKER), *([(sys.executable, "-m", LAUNCH)] if launched else [])}

    async def fork_or_start(*command: Any, **options: Any) -> Any:
        if command[1].endswith(".py") and "env" in options:  # a test's own trainer
            command = (command[0], "-m", *command[1:])
        elif command[:3] not in targets:
            return await start(*command, **options)
        read, write = os.pipe()
        output = options["stdout"].fileno()
        environment = {**options["env"], ADDRESS: os.environ[ADDRESS]}
        process = fork(command[2], command[3:], environment, os.getcwd(), (read, output, output))
        os.close(read)
        return ForkedTrainer(*process, os.fdopen(write, "wb"))

    with mock.patch.object(asyncio, "create_subprocess_exec", fork_or_start):
        yield


@contextlib.contextmanager
def forked_children() -> Iterator[None]:
    """Have the processes of runs that this one starts from Python forked."""
    start = [sys.executable, "-m", CHILD]

    class ForkedOrStarted(subprocess.Popen[Any]):
        def __new__(cls, command: Any, *arguments: Any, **options: Any) -> Any:
            if command[:3] != start:
                return super().__new__(cls)
            (taken, given), (said, saying) = os.pipe(), os.pipe()
            with open(os.devnull, "wb") as nowhere:
                streams = (taken, nowhere.fileno(), saying, *options["pass_fds"])
                process = fork(CHILD, command[3:], options["env"], os.getcwd(), streams, drawn=False)
            os.close(taken)
            os.close(saying)
            return Forked(*process, None, os.fdopen(given, "wb"), os.fdopen(said, "rb"))

    with mock.patch.object(subprocess, "Popen", ForkedOrStarted):
        yield


class ForkedJob:
    """A job as a fork of its launcher: as much of `subprocess.Popen` as the launcher uses."""

    def __init__(self, command: Sequence[str], *, stdin: Any, stderr: Any, env: Mapping[str, str], **_: Any) -> None:
        streams = (stdin.fileno(), os.open(os.devnull, os.O_WRONLY), stderr.fileno())
        order = {"target": JOB, "arguments": command[3:], "environment": env, "folder": os.getcwd(), "drawn": False}
        self.returncode: int | None = None
        if (pid := os.fork()) == 0:
            os.setsid()
            for name in map(int, os.listdir("/proc/self/fd")):
                if name > 2 and name not in streams:
                    with contextlib.suppress(OSError):
                        os.close(name)  # the launcher's locks, too
            atexit._clear()  # what ends with the launcher is not a job's
            disown_finalizers()
            weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
            become(streams, order)
        os.close(streams[1])
        self.pid = pid

    def poll(self) -> int | None:
        self._wait(os.WNOHANG)
        return self.returncode

    def wait(self) -> int | None:
        self._wait(0)
        return self.returncode

    def _wait(self, how: int) -> None:
        if self.returncode is None and (ended := os.waitpid(self.pid, how))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def forked_jobs() -> Iterator[None]:
    """Have jobs under `hydra/launcher=local` forked from this process, their launcher's."""
    popen = subprocess.Popen

    def fork_or_start(command: Any, **options: Any) -> Any:
        return (ForkedJob if list(command[1:3]) == ["-m", JOB] else popen)(command, **options)

    with mock.patch("evorun.cli.local_launcher.subprocess.Popen", fork_or_start):
        yield


@contextlib.contextmanager
def no_figures() -> Iterator[None]:
    """Leave out the figures of a run's page, and leave the others blank: drawing takes longer than a small run."""
    with (
        mock.patch("evorun.reports.html._draw_plots", return_value=defaultdict(lambda: None)),
        mock.patch("evorun.reports.drawing._save", leave_blank),
    ):
        yield


def leave_blank(figure: object, buffer: Any, format: str, *_: object) -> None:
    """Write an empty figure."""
    buffer.write('<svg viewBox="0 0 1 1"></svg>' if format == "svg" else b"%PDF-1.7")


@contextlib.contextmanager
def warm_process(folder: Path, *, at_once: bool) -> Iterator[None]:
    """Keep a process to fork. at_once: it imports now, rather than when the first fork is wanted."""
    address = str(folder / "warm")
    command = [sys.executable, __file__, address, *(["at once"] if at_once else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        os.environ[ADDRESS] = address
        yield
        del os.environ[ADDRESS]


def prepare() -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    run_once()
    disown_finalizers()  # torch's take a fork longer than itself
    gc.collect()
    gc.set_threshold(50_000, 10, 10)  # as in conftest.py
    gc.freeze()  # a fork that looked through it would copy it


def disown_finalizers() -> None:
    """Leave what is finalized at this process's end so far to the process that it was forked from."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False


def run_once() -> None:
    """Carry out the tests' most frequent runs, for what a process does only the first time.

    It reads `conf/`, lists and merges the choices that most tests compose, and compiles the templates of pages.
    """
    program = importlib.import_module("evorun_process")
    runs = (
        ("method=zero_shot", "task=arithmetic", "task.limit=1", "engine=simulated"),
        (*program.DRY_RUN, *program.SMALL),
    )
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_STATE_HOME": folder}):
        for index, words in enumerate(runs):
            assert program.evorun_here(*words, f"hydra.run.dir={index}", cwd=Path(folder)).returncode == 0
    importlib.import_module("evorun.runner.registry").plugins.cache_clear()  # a fork's PYTHONPATH may have others


def serve(address: str, *, at_once: bool) -> None:
    """Fork a process for each order, and tell how each one ended, until stdin ends and all have ended."""
    running: dict[int, tuple[int, socket.socket]] = {}  # id and link of a process by the descriptor that tells its end
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        print("listening", flush=True)
        if at_once:
            prepare()
        waited: list[Any] = [0, listening]
        while waited or running:
            ready = select.select([*waited, *running], [], [])[0]
            for ended in running.keys() & ready:
                pid, link = running.pop(ended)
                tell(link, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                link.close()
                os.close(ended)
            if 0 in ready:  # trainers end with their stdin
                waited = []
            elif listening in ready:
                if IMPORTED[0] not in sys.modules:
                    prepare()
                link, _ = listening.accept()
                pid = carry_out(link, [listening.fileno(), *running, *(link.fileno() for _, link in running.values())])
                running[os.pidfd_open(pid)] = pid, link


def carry_out(link: socket.socket, others: Sequence[int]) -> int:
    """Fork the process that an order asks for, and tell its id. others: descriptors which that process closes."""
    message, streams, *_ = socket.recv_fds(link, ORDER, 4)
    started, begun = os.pipe()
    if (pid := os.fork()) == 0:
        os.setsid()
        os.write(begun, b".")
        for descriptor in (started, begun, link.fileno(), *others):
            os.close(descriptor)
        become(streams, json.loads(message))
    for descriptor in (begun, *streams):
        os.close(descriptor)
    os.read(started, 1)  # whoever wants it may kill its group from now on
    os.close(started)
    tell(link, pid)
    return pid


def tell(link: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever asked may have ended
        link.send(CODE.pack(number))


def fork_launched(handler: Any, command: Sequence[str], environment: Mapping[str, str]) -> Forked:
    """Start, in `accelerate launch`, one of its processes."""
    streams = [
        0,
        *(number if file is None else file.fileno() for file, number in ((handler._stdout, 1), (handler._stderr, 2))),
    ]
    target = command[-2] if command[-2].endswith(".py") else WORKER
    return Forked(*fork(target, command[-1:], environment, os.getcwd(), streams), None)


def become(streams: Sequence[int], order: dict[str, Any]) -> None:
    """Be the process that an order asks for, to its end."""
    for standard, descriptor in enumerate(streams[:3]):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    encoding, _, errors = order["environment"].get("PYTHONIOENCODING", "utf-8").partition(":")
    of_streams = ("rb", errors or None), ("wb", errors or None), ("wb", "backslashreplace")
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, mode, closefd=False), encoding, faults, line_buffering=number == 2)  # noqa: SIM115
        for number, (mode, faults) in enumerate(of_streams)
    )
    os.environ.clear()
    os.environ.update(order["environment"])
    # The hub's client has read its variables already, those of the process that is forked.
    constants = importlib.import_module("huggingface_hub.constants")
    constants.HF_HUB_DISABLE_TELEMETRY = os.environ.get("HF_HUB_DISABLE_TELEMETRY") == "1"
    constants.ENDPOINT = os.environ.get("HF_ENDPOINT", constants.ENDPOINT)
    os.chdir(order["folder"])
    target, arguments = order["target"], order["arguments"]
    sys.argv = [target, *arguments]
    sys.path.insert(0, str(Path(target).parent) if target.endswith(".py") else order["folder"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    code: Any = 1
    try:
        with contextlib.ExitStack() as stack:
            if is_there():
                stack.enter_context(forked_trainers())
            if not order["drawn"]:
                stack.enter_context(no_figures())
            if target == WORKER:
                code = importlib.import_module(WORKER).main(*arguments)
            elif target == CHILD:
                importlib.import_module(CHILD).carry_out(streams[3], json.loads(arguments[1]))
            elif target == JOB:
                importlib.import_module(JOB).main()
            elif target == "evorun":
                stack.enter_context(forked_jobs())
                importlib.import_module("evorun.cli").main()
            elif target == LAUNCH:
                stack.enter_context(mock.patch(f"{ELASTIC}.SubprocessHandler._popen", fork_launched))
                runpy.run_module(LAUNCH, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(target, run_name="__main__")
                code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        if target != WORKER:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1], at_once=len(sys.argv) > 2)

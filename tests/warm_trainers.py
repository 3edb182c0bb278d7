"""Trainer processes as forks of one process, which has imported what takes each of them seconds.

A fork is a process like another trainer: in a session of its own, with the streams, the environment and the end that a
run gives it. Trainers under `accelerate launch`, and those of runs in other processes, are started as ever.
"""

import asyncio
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from evorun.training.process import WORKER

IMPORTED = ("policy_gradient", "proximal_policy", "fine_tuning", "rollouts", "versions", "weights")
CODE = struct.Struct("!i")
ORDER = 65_536
"""Bytes of the longest order: an environment, and the job's file."""


class Forked:
    """What a run knows of its trainer: as much of `asyncio.subprocess.Process` as it uses."""

    def __init__(self, pid: int, link: socket.socket, stdin: Any) -> None:
        self.pid = pid
        self.stdin = stdin
        self._ended = asyncio.create_task(self._code(link))

    @staticmethod
    async def _code(link: socket.socket) -> int:
        with link:
            return int(CODE.unpack(await asyncio.get_running_loop().sock_recv(link, CODE.size))[0])

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class WarmProcess:
    """The process that is forked; it is started once a trainer is wanted, and ends with this one."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "warm")
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, job: str, env: dict[str, str], stdout: Any) -> Forked:
        if self._process is None:
            command = [sys.executable, __file__, self._address]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == b"ready\n"
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(self._address)
        read, write = os.pipe()
        order = json.dumps({"job": job, "environment": env, "folder": os.getcwd()}).encode()
        assert len(order) < ORDER
        socket.send_fds(link, [order], [read, stdout.fileno()])
        os.close(read)
        pid = CODE.unpack(link.recv(CODE.size))[0]
        link.setblocking(False)
        return Forked(pid, link, os.fdopen(write, "wb"))

    def end(self) -> None:
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def forked_trainers(folder: Path) -> Iterator[None]:
    """Have the trainers of this process's runs forked."""
    warm, start = WarmProcess(folder), asyncio.create_subprocess_exec

    async def fork_or_start(*command: Any, **options: Any) -> Any:
        if command[:3] != (sys.executable, "-m", WORKER):
            return await start(*command, **options)
        return warm.fork(command[3], dict(options["env"]), options["stdout"])

    with mock.patch.object(asyncio, "create_subprocess_exec", fork_or_start):
        yield
    warm.end()


def serve(address: str) -> None:
    """Fork a trainer for each order until stdin ends."""
    for module in IMPORTED:
        importlib.import_module(f"evorun.training.{module}")
    importlib.import_module("transformers.models.llama.modeling_llama")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while 0 not in select.select([0, listening], [], [])[0]:
            link, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                keep(link)
            link.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # keepers that have ended
                    pass
        with contextlib.suppress(ChildProcessError):
            while os.wait():  # trainers end with their stdin
                pass


def keep(link: socket.socket) -> None:
    """Fork the trainer that an order asks for, tell its id, and how it ended."""
    message, descriptors, *_ = socket.recv_fds(link, ORDER, 2)
    order = json.loads(message)
    started, begun = os.pipe()
    if (pid := os.fork()) == 0:
        os.setsid()
        os.write(begun, b".")
        train(link, descriptors, order)
    for descriptor in (0, 1, *descriptors):
        os.close(descriptor)
    os.read(started, 1)  # a run may kill the trainer's group from now on
    link.send(CODE.pack(pid))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        link.send(CODE.pack(code))
    os._exit(0)


def train(link: socket.socket, descriptors: list[int], order: dict[str, Any]) -> None:
    """Be the trainer."""
    link.close()
    read, written = descriptors
    for descriptor, standard in ((read, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, standard)
    os.close(read)
    os.close(written)
    os.environ.clear()
    os.environ.update(order["environment"])
    # The hub's client has read its variables already, those of the process that is forked.
    constants = importlib.import_module("huggingface_hub.constants")
    constants.HF_HUB_DISABLE_TELEMETRY = os.environ.get("HF_HUB_DISABLE_TELEMETRY") == "1"
    constants.ENDPOINT = os.environ.get("HF_ENDPOINT", constants.ENDPOINT)
    os.chdir(order["folder"])
    code = 1
    try:
        code = importlib.import_module(WORKER).main(order["job"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])

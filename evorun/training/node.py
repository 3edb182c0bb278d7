"""The trainer's agent on one of several nodes: `python -m evorun.training.node RUN_DIR`.

It joins the run, starts the node's processes under `accelerate launch`, tells the run how they fare, and ends them
with its connection to the run. It waits for a run that has not begun.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from evorun.training.launching import Place, command_line, environment
from evorun.training.node_wire import (
    RENDEZVOUS,
    Begin,
    Ended,
    Gather,
    Gathered,
    Joined,
    decode_order,
    read_rendezvous,
)
from evorun.training.ranks import read_files, read_statuses, write_position
from evorun.training.tcp import connect, find_free_port, find_interface
from evorun.training.wire import frame, read_frame

ENDING_S = 30.0
"""Seconds for the node's processes to end by themselves. `ours`."""

LOOK_S = 0.5
"""Seconds between two looks for a run that has not begun. `ours`."""


class Agent:
    """The processes of a node, and the connection to their run."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="evorun-"))
        self._launcher: subprocess.Popen[bytes] | None = None
        self._watching: threading.Thread | None = None

    def serve(self) -> int:
        """Do as the run says until its connection ends; return the exit code of the node's processes."""
        try:
            self._send(Joined(host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(), port=find_free_port()))
            stream = self._connection.makefile("rb")
            with contextlib.suppress(OSError):  # the run's machine is gone
                while (body := read_frame(stream)) is not None:
                    order = decode_order(body)
                    if isinstance(order, Begin):
                        self._begin(order)
                    elif isinstance(order, Gather):
                        self._send(Gathered(self._gather(stacks=order.stacks)))
            return self._end()
        finally:
            self._connection.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, order: Begin) -> None:
        place = Place(order.rank, order.nodes, order.processes, order.address, order.port)
        print(f"evorun: node {order.rank} of {order.nodes}; its log: {order.log}", flush=True)
        file = self._folder / "job.json"
        file.write_bytes(msgspec.json.encode(order.job))
        variables = environment(order.devices)
        # gloo takes the address of the machine's name, which is often one that only the machine itself can reach.
        interface = find_interface(self._connection.getsockname()[0])
        if interface is not None:
            variables.setdefault("GLOO_SOCKET_IFNAME", interface)
        with Path(order.log).open("ab") as output:
            self._launcher = subprocess.Popen(
                command_line(order.job, file, place),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=variables,
                start_new_session=True,
            )
        self._watching = threading.Thread(target=self._watch, args=(self._launcher,), daemon=True)
        self._watching.start()

    def _watch(self, launcher: "subprocess.Popen[bytes]") -> None:
        code = launcher.wait()
        with contextlib.suppress(OSError):  # the run has ended
            self._send(Ended(code))

    def _gather(self, *, stacks: bool) -> dict[str, bytes]:
        if stacks:
            for status in read_statuses(self._folder):
                write_position(self._folder, status)
        return read_files(self._folder)

    def _end(self) -> int:
        """End the node's processes, by force if they do not end with their stdin; return the launcher's exit code."""
        launcher = self._launcher
        if launcher is None:
            return 1
        assert launcher.stdin is not None  # noqa: S101 - a pipe
        with contextlib.suppress(OSError):
            launcher.stdin.close()
        try:
            return launcher.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            pids = [status.pid for status in read_statuses(self._folder)]
            for kill, number in [(os.killpg, launcher.pid), *((os.kill, pid) for pid in pids)]:
                with contextlib.suppress(ProcessLookupError):
                    kill(number, signal.SIGKILL)
            return launcher.wait()

    def _send(self, message: msgspec.Struct) -> None:
        with self._sending:
            self._connection.sendall(frame(message))


def join(file: Path) -> socket.socket:
    """Return a connection to the run of this rendezvous; wait for the run if it has not begun."""
    said = ""
    while True:
        rendezvous = read_rendezvous(file)
        refused = f"waiting for a run in {file.parent}"
        if rendezvous is not None:
            for address in rendezvous.addresses:
                try:
                    return connect(address, rendezvous.port, rendezvous.secret)
                except OSError as error:
                    refused = f"cannot reach the run of {file} at {address}:{rendezvous.port}: {error}; trying again"
        if refused != said:
            said = refused
            print(f"evorun: {said}", file=sys.stderr, flush=True)
        time.sleep(LOOK_S)


def main(folder: str) -> int:
    """Serve one trainer of the run in a folder; return the exit code of this node's processes."""
    # SLURM sends SIGTERM to every process of a job that it ends; the run, which gets it too, ends the others in order.
    # Not SIG_IGN, which the node's processes would inherit: torchrun ends them with SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: None)
    return Agent(join(Path(folder) / RENDEZVOUS)).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

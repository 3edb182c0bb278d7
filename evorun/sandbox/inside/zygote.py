"""A warm interpreter that runs one program after another, each in a process of its own."""

import contextlib
import gc
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, scratch, syscalls

TICK = 0.05
"""Seconds between two checks of the use of a program's processes."""
GRACE = 2.0
"""Seconds that a killed program's processes have to end."""
PATIENCE = 4
"""Wall limits after which a program is stopped although it only waits for a core."""
_CHUNK = 1 << 16  # the capacity of a pipe


def serve(control: int, settings: dict[str, Any]) -> NoReturn:
    """Answer requests on `control` until it is closed; for the framing of messages see `send`."""
    program.settle()
    names = program.prelude()
    spawner = Spawner(settings)
    # Objects of the prelude are never collected in a program's process, which would copy the pages that they share.
    gc.collect()
    gc.freeze()
    send(control, {})
    while (request := receive(control)) is not None:
        header, (source, stdin) = request
        texts = [text.decode("utf-8", "surrogatepass") for text in (source, stdin)]
        outcome = Supervision(control, spawner, header["limits"], stdin if header["entry"] is None else b"")
        outcome.start(lambda: program.run(texts[0], header["entry"], texts[1], names))  # noqa: B023
        send(control, *outcome.follow())
    os._exit(0)


class Spawner:
    """Forks the processes of programs, and notices their end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.filter = syscalls.Filter(unix_sockets=settings["namespaces"])
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self.endings, wake = os.pipe()
        """Readable when a child has ended."""
        # The wakeup descriptor makes SIGCHLD an event for poll: no polling for ends, no race with the signal.
        os.set_blocking(self.endings, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fork(self) -> int:
        """Fork; with namespaces, the child is the first process of its own: when it ends, all in it do."""
        if not self.settings["namespaces"]:
            return os.fork()
        kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child != 0:
            kernel.join_namespace(self._own_namespace, kernel.CLONE_NEWPID)
        return child

    def make_scratch(self) -> str:
        """Return the folder that will be a program's only writable one; with namespaces, a mount covers it."""
        if self.settings["namespaces"]:
            return str(self.settings["layout"]["scratch"])
        folder = str(tempfile.mkdtemp(dir=self.settings["scratch_parent"]))
        if (user := self.settings["user"]) is not None:
            os.chown(folder, user, user)
        return folder

    def remove_scratch(self, folder: str) -> None:
        """Remove a program's folder; with namespaces, its mount has ended with the program."""
        if not self.settings["namespaces"]:
            with contextlib.suppress(OSError):  # the other side removes what is left, when it closes
                os.chmod(folder, 0o700)
                scratch.remove(folder)

    def end_all(self, program_pid: int) -> float:
        """Kill a program's remaining processes, wait for their end, and return their CPU seconds."""
        # Again and again, since a program that forks may have new processes after each look.
        cpu_seconds = 0.0
        while True:
            try:
                ended, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return cpu_seconds
            if ended:
                cpu_seconds += usage.ru_utime + usage.ru_stime
                continue
            if self.settings["user"] is not None:
                processes.kill_all_of(self.settings["user"])
            processes.kill_group(program_pid)
            for process in processes.below_this():
                processes.kill(process.pid)
            time.sleep(0.001)


class Supervision:
    """One program's execution, from start to end."""

    def __init__(self, control: int, spawner: Spawner, limits: dict[str, Any], stdin: bytes) -> None:
        self._control = control
        self._spawner = spawner
        self._limits = limits
        self._unsent = memoryview(stdin)
        self._room = limits["output_kib"] << 10
        self._poll = select.poll()
        self._readers: dict[int, bytearray] = {}
        self._report = b""
        self._ending: int | None = None
        self._cpu_seconds = 0.0
        self._reason = ""
        self._stopped_at: float | None = None
        self._has_company = False

    def start(self, run: Callable[[], None]) -> None:
        """Fork the program's process, which calls `run` once its limits are in force."""
        self._started = time.monotonic()
        stdin, self._stdin = os.pipe()
        (self._stdout, stdout), (self._stderr, stderr), (self._value, value) = os.pipe(), os.pipe(), os.pipe()
        self._status, status = os.pipe()
        self._scratch = self._spawner.make_scratch()
        self._pid = self._spawner.fork()
        if self._pid == 0:
            spawner = self._spawner
            channels = {0: stdin, 1: stdout, 2: stderr, program.RESULT_DESCRIPTOR: value}
            cell.enter(channels, status, spawner.settings, self._scratch, self._limits, spawner.filter)
            run()
        for descriptor in (stdin, stdout, stderr, value, status):
            os.close(descriptor)
        for descriptor in (self._stdout, self._stderr, self._value):
            self._readers[descriptor] = bytearray()
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._spawner.endings, select.POLLIN)
        self._poll.register(self._control, 0)
        os.set_blocking(self._stdin, False)
        self._poll.register(self._stdin, select.POLLOUT)
        self._feed()

    def follow(self) -> tuple[dict[str, Any], bytes, bytes, bytes]:
        """Wait for the program's end; return a header, then standard output, standard error and result."""
        next_look = self._started + TICK
        while self._ending is None:
            now = time.monotonic()
            if self._stopped_at is not None and now > self._stopped_at + GRACE:
                os._exit(1)  # the other side starts a fresh zygote
            if now >= next_look:
                self._look(now - self._started)
                next_look = time.monotonic() + TICK
            self._move(next_look - now)
        if self._writes_too_much():
            self._stop("files")
        self._cpu_seconds += self._spawner.end_all(self._pid)
        self._spawner.remove_scratch(self._scratch)
        for descriptor in self._readers:
            while self._read(descriptor):  # what was still in the pipe
                pass
        self._report = os.read(self._status, _CHUNK)
        for descriptor in (self._stdin, self._status, *self._readers):
            if descriptor >= 0:
                os.close(descriptor)
        stdout, stderr, value = map(bytes, self._readers.values())
        return self._header(), stdout, stderr, value

    def _move(self, timeout: float) -> None:
        """Wait for events on the channels, for `timeout` seconds at most, and handle them."""
        for descriptor, event in self._poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self._control:
                self._spawner.end_all(self._pid)  # the other side is gone
                self._spawner.remove_scratch(self._scratch)
                os._exit(1)
            elif descriptor == self._stdin:
                self._feed()
            elif descriptor == self._spawner.endings:
                self._collect()
            elif event & select.POLLIN:
                self._read(descriptor)
            else:
                self._poll.unregister(descriptor)

    def _feed(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program has closed its standard input
            pass
        self._poll.unregister(self._stdin)
        os.close(self._stdin)
        self._stdin = -1

    def _read(self, descriptor: int) -> bool:
        """Read the available bytes, within the output limit; return whether there may be more."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if len(data) > self._room:
            self._stop("output")
        data = data[: self._room]
        self._room -= len(data)
        self._readers[descriptor] += data
        return bool(data)

    def _collect(self) -> None:
        """Collect the exit statuses that have arrived: the program's own, and those of adopted orphans."""
        os.read(self._spawner.endings, _CHUNK)
        while self._ending is None:
            ended, status, usage = os.wait4(-1, os.WNOHANG)
            if not ended:
                return
            self._cpu_seconds += usage.ru_utime + usage.ru_stime
            if ended == self._pid:
                self._ending = status

    def _look(self, elapsed: float) -> None:
        """Stop a program whose processes together exceed a limit."""
        used = processes.below_this()
        if sum(process.cpu_seconds for process in used) > self._limits["cpu_seconds"]:
            self._stop("cpu")
        elif sum(process.resident_bytes for process in used) > self._limits["memory_mib"] << 20:
            self._stop("memory")
        elif sum(process.threads for process in used) > self._limits["processes"]:
            self._stop("processes")
        elif elapsed > self._limits["wall_seconds"] and self._is_late(elapsed):
            self._stop("wall")
        elif self._writes_too_much():
            self._stop("files")
        self._has_company |= sum(process.threads for process in used) > 1

    def _writes_too_much(self) -> bool:
        """Return whether the scratch folder is over its limit, where no mount of its own size enforces that."""
        if self._spawner.settings["namespaces"]:
            return False
        return scratch.is_larger(self._scratch, self._limits["file_mib"] << 20, cell.SCRATCH_FILES)

    def _is_late(self, elapsed: float) -> bool:
        """Return whether the program itself took too long, and not a machine that gave it no core."""
        limit: float = self._limits["wall_seconds"]
        if self._has_company:  # then it may wait for its own processes
            return True
        return elapsed > PATIENCE * limit or elapsed - processes.longest_wait_for_a_core() > limit

    def _stop(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            self._stopped_at = time.monotonic()
            if self._ending is None:
                processes.kill_group(self._pid)
                processes.kill(self._pid)

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {
            "reason": self._reason,
            "wall_seconds": time.monotonic() - self._started,
            "cpu_seconds": self._cpu_seconds,
            "code": os.waitstatus_to_exitcode(self._ending or 0),
        }
        if self._report != b"ready":
            header["failed"] = self._report.decode("utf-8", "replace") or "the program was not started"
        return header


def send(control: int, header: dict[str, Any], *blobs: bytes) -> None:
    """Write a message: a header's length in 4 bytes, the header in JSON, and blobs, whose lengths it lists."""
    text = json.dumps({**header, "lengths": [len(blob) for blob in blobs]}).encode()
    for part in (len(text).to_bytes(4, "big"), text, *blobs):
        view = memoryview(part)
        while view:
            view = view[os.write(control, view) :]


def receive(control: int) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read a message; return None at the end of the stream."""
    length = _read_exactly(control, 4)
    if length is None:
        return None
    header = json.loads(_read_exactly(control, int.from_bytes(length, "big")) or b"{}")
    return header, [_read_exactly(control, length) or b"" for length in header["lengths"]]


def _read_exactly(control: int, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        part = os.read(control, min(length - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)

"""A warm interpreter that runs one program after another, each in a process of its own."""

import gc
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, syscalls

TICK = 0.05
"""Seconds between looks at what a program's processes use."""
GRACE = 2.0
"""Seconds for a killed program's processes to be gone."""
PATIENCE = 4
"""Times the wall limit: how long a program may take that keeps waiting for a core."""
_CHUNK = 1 << 16


def serve(control: int, settings: dict[str, Any]) -> NoReturn:
    """Answer requests on `control` until it is closed. A message is framed as `send` and `receive` do."""
    program.settle()
    names = program.prelude()
    nursery = Nursery(settings)
    gc.collect()
    gc.freeze()
    send(control, {})
    while (request := receive(control)) is not None:
        header, (source, stdin) = request
        texts = [text.decode("utf-8", "surrogatepass") for text in (source, stdin)]
        outcome = Supervision(control, nursery, header["limits"], stdin if header["entry"] is None else b"")
        outcome.start(lambda: program.run(texts[0], header["entry"], texts[1], names))  # noqa: B023
        send(control, *outcome.follow())
    os._exit(0)


class Nursery:
    """Where programs' processes are born, and where their end is noticed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.filter = syscalls.Filter()
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self.endings, wake = os.pipe()
        """Readable when a child has ended."""
        os.set_blocking(self.endings, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fork(self) -> int:
        """Fork; the child is the first process of a namespace of its own, where there are namespaces."""
        if not self.settings["namespaces"]:
            return os.fork()
        kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child != 0:
            kernel.join_namespace(self._own_namespace, kernel.CLONE_NEWPID)
        return child

    def make_scratch(self) -> str:
        """Return the folder that will be a program's only writable one; with namespaces, its own mount covers it."""
        if self.settings["namespaces"]:
            return str(self.settings["layout"]["scratch"])
        return str(tempfile.mkdtemp(dir=self.settings["scratch_parent"]))

    def remove_scratch(self, folder: str) -> None:
        """Remove a program's folder, where its end has not done so already."""
        if not self.settings["namespaces"]:
            os.chmod(folder, 0o700)
            for path, folders, _ in os.walk(folder):
                for name in folders:  # before walk looks into it
                    if not os.path.islink(f"{path}/{name}"):
                        os.chmod(f"{path}/{name}", 0o700)
            shutil.rmtree(folder, ignore_errors=True)

    def end_all(self) -> float:
        """Kill what is left of a program and wait for it; returns the CPU seconds of it."""
        cpu_seconds = 0.0
        while True:
            try:
                ended, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return cpu_seconds
            if ended:
                cpu_seconds += usage.ru_utime + usage.ru_stime
                continue
            for process in processes.below_this():
                processes.kill(process.pid)
            time.sleep(0.001)


class Supervision:
    """One program from its start to its end."""

    def __init__(self, control: int, nursery: Nursery, limits: dict[str, Any], stdin: bytes) -> None:
        self._control = control
        self._nursery = nursery
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
        """Fork the program's process, in which `run` is called once its limits are in force."""
        self._started = time.monotonic()
        stdin, self._stdin = os.pipe()
        (self._stdout, stdout), (self._stderr, stderr), (self._value, value) = os.pipe(), os.pipe(), os.pipe()
        self._status, status = os.pipe()
        self._scratch = self._nursery.make_scratch()
        self._pid = self._nursery.fork()
        if self._pid == 0:
            nursery = self._nursery
            channels = {0: stdin, 1: stdout, 2: stderr, program.RESULT_DESCRIPTOR: value}
            cell.enter(channels, status, nursery.settings, self._scratch, self._limits, nursery.filter)
            run()
        for descriptor in (stdin, stdout, stderr, value, status):
            os.close(descriptor)
        for descriptor in (self._stdout, self._stderr, self._value):
            self._readers[descriptor] = bytearray()
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._nursery.endings, select.POLLIN)
        self._poll.register(self._control, 0)
        os.set_blocking(self._stdin, False)
        self._poll.register(self._stdin, select.POLLOUT)
        self._feed()

    def follow(self) -> tuple[dict[str, Any], bytes, bytes, bytes]:
        """Return what became of the program: a header, then standard output, standard error and result."""
        next_look = self._started + TICK
        while self._ending is None:
            now = time.monotonic()
            if self._stopped_at is not None and now > self._stopped_at + GRACE:
                os._exit(1)  # the other side starts a fresh zygote
            if now >= next_look:
                self._look(now - self._started)
                next_look = time.monotonic() + TICK
            self._move(next_look - now)
        self._cpu_seconds += self._nursery.end_all()
        self._nursery.remove_scratch(self._scratch)
        for descriptor in self._readers:
            self._drain(descriptor)
        self._report = os.read(self._status, _CHUNK)
        for descriptor in (self._stdin, self._status, *self._readers):
            if descriptor >= 0:
                os.close(descriptor)
        stdout, stderr, value = map(bytes, self._readers.values())
        return self._header(), stdout, stderr, value

    def _move(self, timeout: float) -> None:
        """Wait for something to happen on the channels, and let it."""
        for descriptor, event in self._poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self._control:
                os._exit(1)  # nobody is left to answer to; our end is the program's
            elif descriptor == self._stdin:
                self._feed()
            elif descriptor == self._nursery.endings:
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
        except BrokenPipeError:  # the program does not read on
            pass
        self._poll.unregister(self._stdin)
        os.close(self._stdin)
        self._stdin = -1

    def _read(self, descriptor: int) -> bool:
        """Take what is there; returns whether there may be more."""
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

    def _drain(self, descriptor: int) -> None:
        while self._read(descriptor):
            pass

    def _collect(self) -> None:
        """Take the exit statuses that have arrived: the program's own, and those of orphans that came to us."""
        os.read(self._nursery.endings, _CHUNK)
        while self._ending is None:
            ended, status, usage = os.wait4(-1, os.WNOHANG)
            if not ended:
                return
            self._cpu_seconds += usage.ru_utime + usage.ru_stime
            if ended == self._pid:
                self._ending = status

    def _look(self, elapsed: float) -> None:
        """Stop a program whose processes together use more than it may."""
        used = processes.below_this()
        if sum(process.cpu_seconds for process in used) > self._limits["cpu_seconds"]:
            self._stop("cpu")
        elif sum(process.resident_bytes for process in used) > self._limits["memory_mib"] << 20:
            self._stop("memory")
        elif sum(process.threads for process in used) > self._limits["processes"]:
            self._stop("processes")
        elif elapsed > self._limits["wall_seconds"] and self._is_late(elapsed):
            self._stop("wall")
        self._has_company |= sum(process.threads for process in used) > 1

    def _is_late(self, elapsed: float) -> bool:
        """Tell whether the wall limit is met by the program itself, and not by a machine that gives it no core."""
        limit: float = self._limits["wall_seconds"]
        if self._has_company:  # then it may be its own processes that it waits for
            return True
        return elapsed > PATIENCE * limit or elapsed - processes.longest_wait_for_a_core() > limit

    def _stop(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            self._stopped_at = time.monotonic()
            if self._ending is None:
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
    """Write a message: the length of a JSON header, which names the lengths of what follows it."""
    text = json.dumps({**header, "lengths": [len(blob) for blob in blobs]}).encode()
    for part in (len(text).to_bytes(4, "big"), text, *blobs):
        view = memoryview(part)
        while view:
            view = view[os.write(control, view) :]


def receive(control: int) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read a message; None at the end."""
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

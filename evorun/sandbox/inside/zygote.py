"""A warm interpreter that runs one program after another, each in a process of its own.

Its memory is every program's, since they are forked from it: so it never holds what a program is, reads or writes. That
passes through files without a name, which the other side of the control channel makes and reads.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, scratch, syscalls

TICK = 0.05
"""Seconds between two checks of the use of a program's processes."""
GRACE = 10.0
"""Seconds that a killed program's processes have to end."""
PATIENCE = 4
"""Wall limits after which a program is stopped although it only waits for a core."""
_LONGEST_MESSAGE = 1 << 16


def serve(control: int, settings: dict[str, Any]) -> NoReturn:
    """Answer requests on `control` until it is closed.

    The first message brings four files, which every program uses: for its texts (source, entry and arguments, of the
    lengths that a request gives), standard output, standard error and result. A request is JSON, with a file for
    standard input; an answer is a line of JSON.
    """
    program.settle()
    main = program.main_module()
    spawner = Spawner(settings)
    channel = socket.socket(fileno=control)
    # Objects of the prelude are never collected in a program's process, which would copy the pages that they share.
    gc.collect()
    gc.freeze()
    channel.sendall(b"{}\n")
    _, (texts, *outputs), _, _ = socket.recv_fds(channel, 1, 4)
    while True:
        # One read gets a whole request: it is short, and the next one comes after our answer.
        message, inputs, _, _ = socket.recv_fds(channel, _LONGEST_MESSAGE, 1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        supervision = Supervision(control, spawner, request["limits"], outputs)
        supervision.start(texts, inputs[0], lambda: program.run(request["lengths"], main))  # noqa: B023
        answer = supervision.follow()
        os.close(inputs[0])
        channel.sendall(json.dumps(answer).encode() + b"\n")


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

    def __init__(self, control: int, spawner: Spawner, limits: dict[str, Any], outputs: list[int]) -> None:
        self._control = control
        self._spawner = spawner
        self._limits = limits
        self._outputs = outputs
        self._room = limits["output_kib"] << 10
        self._poll = select.poll()
        self._files: dict[int, int] = {}
        """By the pipe that an output comes out of, the file that it goes to."""
        self._lengths: dict[int, int] = {}
        self._report = b""
        self._ending: int | None = None
        self._collected = 0.0
        """CPU seconds of the processes that have ended as our children."""
        self._cpu_seconds = 0.0
        """The most that was seen: the kernel forgets those of orphans that end together with the first process."""
        self._reason = ""
        self._stopped_at: float | None = None
        self._has_company = False

    def start(self, texts: int, stdin: int, run: Callable[[], None]) -> None:
        """Fork the program's process, which calls `run` once its limits are in force."""
        self._started = time.monotonic()
        channels = {0: stdin, program.TEXTS_DESCRIPTOR: texts}
        for number, file in zip((1, 2, program.RESULT_DESCRIPTOR), self._outputs, strict=True):
            # A pipe, and not the file itself, which the program could read, shorten and fill without an end.
            reader, channels[number] = os.pipe()
            self._files[reader], self._lengths[reader] = file, 0
            self._poll.register(reader, select.POLLIN)
        self._status, status = os.pipe()
        self._scratch = self._spawner.make_scratch()
        self._pid = self._spawner.fork()
        if self._pid == 0:
            spawner = self._spawner
            cell.enter(channels, status, spawner.settings, self._scratch, self._limits, spawner.filter)
            run()
        for descriptor in (channels[1], channels[2], channels[program.RESULT_DESCRIPTOR], status):
            os.close(descriptor)
        self._poll.register(self._spawner.endings, select.POLLIN)
        self._poll.register(self._control, 0)

    def follow(self) -> dict[str, Any]:
        """Wait for the program's end, and return the answer to the request."""
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
        self._collected += self._spawner.end_all(self._pid)
        self._cpu_seconds = max(self._cpu_seconds, self._collected)
        self._spawner.remove_scratch(self._scratch)
        for reader in self._files:
            while self._pass_on(reader):  # what was still in the pipe
                pass
        self._report = os.read(self._status, _LONGEST_MESSAGE)
        for descriptor in (self._status, *self._files):
            os.close(descriptor)
        return self._answer()

    def _move(self, timeout: float) -> None:
        """Wait for events on the channels, for `timeout` seconds at most, and handle them."""
        for descriptor, event in self._poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self._control:  # the other side is gone or wants no answer
                self._spawner.end_all(self._pid)
                self._spawner.remove_scratch(self._scratch)
                os._exit(1)
            elif descriptor == self._spawner.endings:
                self._collect()
            elif not (event & select.POLLIN and self._pass_on(descriptor)):
                self._poll.unregister(descriptor)

    def _pass_on(self, reader: int) -> bool:
        """Move what is in a pipe to its file, within the output limit; return whether there may be more."""
        try:
            # splice moves the bytes inside the kernel: they never come into this process.
            moved = os.splice(
                reader,
                self._files[reader],
                self._room + 1,
                offset_dst=self._lengths[reader],
                flags=os.SPLICE_F_NONBLOCK,
            )
        except BlockingIOError:
            return False
        if moved > self._room:
            self._stop("output")
            moved = self._room
        self._room -= moved
        self._lengths[reader] += moved
        return moved > 0

    def _collect(self) -> None:
        """Collect the exit statuses that have arrived: the program's own, and those of adopted orphans."""
        os.read(self._spawner.endings, _LONGEST_MESSAGE)
        while self._ending is None:
            ended, status, usage = os.wait4(-1, os.WNOHANG)
            if not ended:
                return
            self._collected += usage.ru_utime + usage.ru_stime
            if ended == self._pid:
                self._ending = status

    def _look(self, elapsed: float) -> None:
        """Stop a program whose processes together exceed a limit."""
        used = processes.below_this()
        cpu_seconds = self._collected + sum(process.cpu_seconds for process in used)
        self._cpu_seconds = max(self._cpu_seconds, cpu_seconds)
        held = sum(process.resident_bytes for process in used)
        if self._spawner.settings["namespaces"]:  # else its sockets are among those of the whole machine
            held += processes.socket_bytes()
        if cpu_seconds > self._limits["cpu_seconds"]:
            self._stop("cpu")
        elif held > self._limits["memory_mib"] << 20:
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

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "reason": self._reason,
            "wall_seconds": time.monotonic() - self._started,
            "cpu_seconds": self._cpu_seconds,
            "code": os.waitstatus_to_exitcode(self._ending or 0),
            "lengths": list(self._lengths.values()),
        }
        if self._report != b"ready":
            answer["failed"] = self._report.decode("utf-8", "replace") or "the program was not started"
        return answer

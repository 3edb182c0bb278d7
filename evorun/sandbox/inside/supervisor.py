"""The process that answers requests to run programs: it starts each, watches it, and reports its end.

Programs are not forked from it (see `template`), since it remembers earlier programs.
"""

import contextlib
import json
import os
import select
import signal
import socket
import tempfile
import time
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, scratch
from evorun.sandbox.inside.template import ENDED, Template

TICK = 0.05
"""Seconds between two checks of the resource use of a program's processes."""
GRACE = 10.0
"""Seconds that a killed program's processes have to end."""
PATIENCE = 4
"""Multiple of the wall limit at which a program is stopped even if it only waits for a core."""
WAIT_FOR_ALL_KINDS = 0x40000000  # __WALL: children with any exit signal
_LONGEST_MESSAGE = 1 << 16


def serve(control: int, settings: dict[str, Any]) -> NoReturn:
    """Answer requests on `control` until it is closed.

    The first message brings four files that every program uses: for its texts, standard output, standard error and
    result. The texts are source, entry and arguments, of the lengths that a request gives. A request is JSON, with a
    file for standard input; an answer is a line of JSON.
    """
    spawner = Spawner(settings)
    channel = socket.socket(fileno=control)
    channel.sendall(b"{}\n")
    _, (texts, *outputs), _, _ = socket.recv_fds(channel, 1, 4)
    while True:
        # One read gets a whole request: it is short, and the next one follows our answer.
        message, inputs, _, _ = socket.recv_fds(channel, _LONGEST_MESSAGE, 1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        supervision = Supervision(control, spawner, request["limits"], outputs)
        supervision.start(request["lengths"], texts, inputs[0])
        answer = supervision.follow()
        os.close(inputs[0])
        channel.sendall(json.dumps(answer).encode() + b"\n")


class Spawner:
    """Starts the processes of programs, and detects their end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.template = Template(settings)
        self.endings, wake = os.pipe()
        """Readable when a child has ended."""
        # The wakeup descriptor turns SIGCHLD into an event for poll: no busy waiting, no race with the signal.
        os.set_blocking(self.endings, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for ended in (ENDED, signal.SIGCHLD):
            signal.signal(ended, lambda *_: None)

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a program's process (see `Template.fork`) and return its number."""
        if self.settings["namespaces"]:
            # Give every program the same number. The template sees the numbers, and programs inherit its memory:
            # growing numbers would reveal how many processes earlier programs had. Not every kernel allows it.
            with contextlib.suppress(OSError):
                kernel.write("/proc/sys/kernel/ns_last_pid", str(self.template.pid))
        return self.template.fork(request, descriptors)

    def make_scratch(self) -> str:
        """Return a program's only writable folder; with namespaces, a mount covers it."""
        if self.settings["namespaces"]:
            return str(self.settings["layout"]["scratch"])
        folder = str(tempfile.mkdtemp(dir=self.settings["scratch_parent"]))
        if (user := self.settings["user"]) is not None:
            os.chown(folder, user, user)
        return folder

    def remove_scratch(self, folder: str) -> None:
        """Remove a program's folder; with namespaces, its mount ends with the program."""
        if not self.settings["namespaces"]:
            with contextlib.suppress(OSError):  # the other side removes the rest when it closes
                os.chmod(folder, 0o700)
                scratch.remove(folder)

    def end_all(self, program_pid: int) -> float:
        """Kill a program's remaining processes, wait for their end, and return their CPU seconds."""
        # Repeat, since a program that forks may have new processes after each check.
        cpu_seconds = 0.0
        while True:
            left, ended = False, 0
            for process, kind in ((program_pid, WAIT_FOR_ALL_KINDS), (-1, 0)):  # the second: all except the template
                with contextlib.suppress(ChildProcessError):
                    ended, _, usage = os.wait4(process, os.WNOHANG | kind)
                    cpu_seconds += usage.ru_utime + usage.ru_stime
                    left = True
            if not left:
                return cpu_seconds
            if ended:
                continue
            if self.settings["user"] is not None:
                processes.kill_processes(self.settings["user"])
            processes.kill_group(program_pid)
            for other in processes.list_descendants(self.template.pid_in_proc):
                processes.kill(other.pid)
            time.sleep(0.001)


class Supervision:
    """Supervises a program's execution from start to end."""

    def __init__(self, control: int, spawner: Spawner, limits: dict[str, Any], outputs: list[int]) -> None:
        self._control = control
        self._spawner = spawner
        self._limits = limits
        self._outputs = outputs
        self._room = limits["output_kib"] << 10
        self._poll = select.poll()
        self._files: dict[int, int] = {}
        """The file of each output, by the pipe that it comes from."""
        self._lengths: dict[int, int] = {}
        self._report = b""
        self._ending: int | None = None
        self._collected = 0.0
        """CPU seconds of ended processes that were our children."""
        self._cpu_seconds = 0.0
        """Maximum CPU seconds seen: the kernel forgets those of orphans that end together with the first process."""
        self._reason = ""
        self._stopped_at: float | None = None
        self._has_company = False

    def start(self, lengths: list[int], texts: int, stdin: int) -> None:
        """Start the program's process. `lengths`: of its source, entry and arguments."""
        self._started = time.monotonic()
        channels = {0: stdin, program.TEXTS_DESCRIPTOR: texts}
        for number, file in zip((1, 2, program.RESULT_DESCRIPTOR), self._outputs, strict=True):
            # A pipe, not the file itself, which the program could read, truncate and fill without limit.
            reader, channels[number] = os.pipe()
            self._files[reader], self._lengths[reader] = file, 0
            self._poll.register(reader, select.POLLIN)
        self._status, status = os.pipe()
        self._scratch = self._spawner.make_scratch()
        request = {"channels": list(channels), "lengths": lengths, "limits": self._limits, "scratch": self._scratch}
        self._pid = self._spawner.fork(request, [*channels.values(), status])
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
            while self._pass_on(reader):  # the rest of the pipe
                pass
        self._report = os.read(self._status, _LONGEST_MESSAGE)
        for descriptor in (self._status, *self._files):
            os.close(descriptor)
        return self._answer()

    def _move(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for events on the channels, and handle them."""
        for descriptor, event in self._poll.poll(max(0.0, timeout) * 1000):
            if descriptor == self._control:  # the other side has ended or wants no answer
                self._spawner.end_all(self._pid)
                self._spawner.remove_scratch(self._scratch)
                os._exit(1)
            elif descriptor == self._spawner.endings:
                self._collect()
            elif not (event & select.POLLIN and self._pass_on(descriptor)):
                self._poll.unregister(descriptor)

    def _pass_on(self, reader: int) -> bool:
        """Move a pipe's content to its file, within the output limit. Return whether there may be more."""
        try:
            # splice moves the bytes inside the kernel: they never enter this process.
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
        """Collect the available exit statuses: the program's, and those of adopted orphans."""
        os.read(self._spawner.endings, _LONGEST_MESSAGE)
        while self._ending is None:
            ended, status, usage = os.wait4(-1, os.WNOHANG | WAIT_FOR_ALL_KINDS)
            if not ended:
                return
            if ended == self._spawner.template.pid:
                os._exit(1)  # the other side starts a fresh zygote
            self._collected += usage.ru_utime + usage.ru_stime
            if ended == self._pid:
                self._ending = status

    def _look(self, elapsed: float) -> None:
        """Stop a program whose processes together exceed a limit."""
        used = processes.list_descendants(self._spawner.template.pid_in_proc)
        cpu_seconds = self._collected + sum(process.cpu_seconds for process in used)
        self._cpu_seconds = max(self._cpu_seconds, cpu_seconds)
        held = sum(process.held_bytes for process in used)
        if self._spawner.settings["namespaces"]:  # otherwise all the machine's sockets would count
            held += processes.max_socket_bytes()
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
        """Return whether the scratch folder exceeds its limit; with namespaces, its mount enforces the limit."""
        if self._spawner.settings["namespaces"]:
            return False
        return scratch.is_larger(self._scratch, self._limits["file_mib"] << 20, cell.SCRATCH_FILES)

    def _is_late(self, elapsed: float) -> bool:
        """Return whether the program took too long, not counting its wait for a core."""
        limit: float = self._limits["wall_seconds"]
        if self._has_company:  # then it may be waiting for its other processes
            return True
        waited = processes.longest_core_wait(self._spawner.template.pid_in_proc)
        return elapsed > PATIENCE * limit or elapsed - waited > limit

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

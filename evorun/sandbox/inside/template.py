"""The process that programs are forked from. It never holds data of a program.

Every program inherits its memory. It therefore reads only empty signals to fork, and each program's process reads its
own request.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, syscalls

ENDED = signal.SIGUSR1
"""Exit signal of the template and, by inheritance, of a program's first process, unless that executes another program.

A plain wait does not report children with this signal. It reports the others: orphans of programs, which the supervisor
adopts when there are no namespaces.
"""
_LONGEST_MESSAGE = 1 << 16


class Template:
    """A child of this process with a warm interpreter. Its forks are children of this process, too."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Fork the template and wait until it is ready.

        Raises OSError if this machine cannot filter system calls, EOFError if the template ends.
        """
        forbidden = syscalls.Filter(unix_sockets=settings["namespaces"])
        self._calls, calls = socket.socketpair()
        # A second pair for requests, which the template must not read.
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = kernel.fork(exit_signal=ENDED)
        if self.pid == 0:
            self._calls.close()
            self._requests.close()
            _serve(calls, requests, settings, forbidden)
        calls.close()
        requests.close()
        self._answer()
        self.pid_in_proc = processes.list_descendants()[0].pid
        """Its number in /proc, which may differ from that in this process's namespace."""

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a program's process and return its number.

        `request` holds limits, lengths and the scratch folder. `descriptors` belong to the numbers in its "channels";
        the last one is the status pipe. Raises OSError, or EOFError when the template has ended.
        """
        socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        self._calls.send(b".")
        return int(self._answer())

    def _answer(self) -> bytes:
        answer = self._calls.recv(_LONGEST_MESSAGE)
        if not answer:
            raise EOFError("the template ended")
        return answer


def _preload(settings: dict[str, Any]) -> None:
    """Import the modules that programs find imported."""
    if settings["preload"] and settings["namespaces"]:
        # Some packages write caches as they are imported. Each program's own scratch folder covers this one.
        kernel.mount("preload", settings["layout"]["scratch"], "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64m")
    for module in settings["preload"]:
        importlib.import_module(module)
    # No program sees what these modules set, or runs what they want done at an interpreter's end.
    os.environ.clear()
    atexit._clear()


def _serve(
    calls: socket.socket, requests: socket.socket, settings: dict[str, Any], forbidden: syscalls.Filter
) -> NoReturn:
    """Fork a program's process on each signal, until `calls` closes."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    program.settle()
    _preload(settings)
    main = program.main_module()
    # Programs are siblings of the template, so that only the supervisor learns of their end and their resource use.
    # gVisor ignores the flag. There an intermediate process, which ends at once, leaves them to the supervisor.
    flags = kernel.CLONE_PARENT
    if settings["namespaces"]:
        # The program is the first process of its namespace: when it ends, all processes in it end.
        flags |= kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
    # Freeze the prelude's objects: collecting them in a program's process would copy shared pages.
    gc.collect()
    gc.freeze()
    calls.send(b"ready")
    while calls.recv(1):
        middle = os.fork() if settings["gvisor"] else 0
        if middle:
            os.waitpid(middle, 0)
            continue
        child = kernel.fork(flags)
        if child == 0:
            message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_MESSAGE, 8)
            request = json.loads(message)
            *ours, status = descriptors
            channels = dict(zip(request["channels"], ours, strict=True))
            cell.enter(channels, status, settings, request["scratch"], request["limits"], forbidden)
            program.run(request["lengths"], main)
        calls.send(b"%d" % child)
        if settings["gvisor"]:
            os._exit(0)
    os._exit(0)

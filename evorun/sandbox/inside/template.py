"""The process that programs are forked from: it never holds anything of theirs.

Its memory is every program's. So it reads calls that say nothing, and each program's own process receives its request.
"""

import gc
import json
import os
import signal
import socket
from typing import Any, NoReturn

from evorun.sandbox.inside import cell, kernel, processes, program, syscalls

ENDED = signal.SIGUSR1
"""The signal of the template's end and, since that passes on, of a program's first process, unless it executes another.

Those are the children that a plain wait does not mention: orphans of programs, which become children of the supervisor
under limits alone, are the others.
"""
_LONGEST_MESSAGE = 1 << 16


class Template:
    """A child of this process with a warm interpreter, whose copies are children of this process, too."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Fork it and wait until it is ready. Raises OSError where system calls cannot be filtered, EOFError."""
        forbidden = syscalls.Filter(unix_sockets=settings["namespaces"])
        self._calls, calls = socket.socketpair()
        # Another one for requests, which the template must not read.
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = kernel.fork(exit_signal=ENDED)
        if self.pid == 0:
            self._calls.close()
            self._requests.close()
            _serve(calls, requests, settings, forbidden)
        calls.close()
        requests.close()
        self._answer()
        self.pid_in_proc = processes.below_this()[0].pid
        """Its number in /proc, which may not be that of this process's namespace."""

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a program's process and return its number.

        `request` is the JSON with limits, lengths and scratch folder; `descriptors` belong to the numbers in its
        "channels", and the last one is the status pipe. Raises OSError, EOFError when the template has ended.
        """
        socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        self._calls.send(b".")
        return int(self._answer())

    def _answer(self) -> bytes:
        answer = self._calls.recv(_LONGEST_MESSAGE)
        if not answer:
            raise EOFError("the template ended")
        return answer


def _serve(
    calls: socket.socket, requests: socket.socket, settings: dict[str, Any], forbidden: syscalls.Filter
) -> NoReturn:
    """Fork a program's process at each call, until `calls` is closed."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    program.settle()
    main = program.main_module()
    # Siblings, so that their ends and their use of the machine are known to the supervisor alone.
    # gVisor ignores the flag: there a process between, which ends at once, leaves them to the supervisor.
    flags = kernel.CLONE_PARENT
    if settings["namespaces"]:
        # The program is the first process of its own namespace: when it ends, all in it do.
        flags |= kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
    # Objects of the prelude are never collected in a program's process, which would copy the pages that they share.
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

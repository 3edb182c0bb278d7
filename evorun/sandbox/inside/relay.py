"""Relays requests to a supervisor through a channel that carries only bytes, since gVisor's kernel gets no open files.

This process holds the texts and outputs of all programs. No program is a copy of it: the supervisor is forked from it
before the first program arrives.
"""

import fcntl
import json
import os
import select
import socket
from typing import NoReturn

from evorun.sandbox.inside import kernel


def enter(control: int) -> int:
    """Continue in a child, and return its channel for `supervisor.serve`. The parent relays and never returns."""
    ours, theirs = socket.socketpair()
    # In gVisor, only the first process of a namespace adopts orphans.
    kernel.unshare(kernel.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        ours.close()
        os.close(control)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        return theirs.detach()
    theirs.close()
    try:
        _relay(socket.socket(fileno=control), ours)
    finally:
        os._exit(1)


def _relay(outside: socket.socket, inside: socket.socket) -> NoReturn:
    """Pass evorun's requests to the supervisor and its answers back, until one side closes; then end the process."""
    texts, *outputs = files = [os.memfd_create("evorun") for _ in range(4)]
    source = outside.makefile("rb")
    answers = inside.makefile("rb")
    outside.sendall(answers.readline())  # the supervisor is ready
    socket.send_fds(inside, [b"\n"], files)
    while True:
        sizes = [int(size) for size in source.readline().split()]
        if not sizes:
            os._exit(0)
        request, program, typed = (source.read(size) for size in sizes)
        _replace(texts, program)
        stdin = os.memfd_create("evorun", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _replace(stdin, typed)
        fcntl.fcntl(stdin, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW)
        socket.send_fds(inside, [request], [stdin])
        os.close(stdin)
        # The only event from outside now is its end, and then the program must end too.
        waiting = select.poll()
        waiting.register(inside, select.POLLIN)
        waiting.register(outside, select.POLLIN)
        if any(descriptor == outside.fileno() for descriptor, _ in waiting.poll()):
            os._exit(1)
        answer = answers.readline()
        if not answer:
            os._exit(1)
        lengths = json.loads(answer)["lengths"]
        outside.sendall(answer)
        for file, length in zip(outputs, lengths, strict=True):
            outside.sendall(os.pread(file, length, 0))
            os.ftruncate(file, 0)


def _replace(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)

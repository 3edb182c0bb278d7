"""Reads the resource use of this process's descendants, and of their sockets, from /proc."""

import contextlib
import os
import signal
import socket
from typing import NamedTuple

from evorun.sandbox.inside import kernel

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


with socket.socket(socket.AF_UNIX) as _socket:
    # Twice the buffer, since the last message may exceed it.
    _SOCKET_BYTES = 2 * _socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


class Process(NamedTuple):
    """A snapshot of a process."""

    pid: int
    parent: int
    cpu_seconds: float
    """CPU time, including that of children it has waited for."""
    threads: int
    held_bytes: int
    """Resident memory and its page tables, which alone may be large."""


def list_descendants(without: int = 0) -> list[Process]:
    """Return the descendants of this process, with their numbers in /proc, except `without` and its descendants."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != without and (process := _read(name)) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [_this()]
    while waiting:
        own_children = children.get(waiting.pop(), [])
        found += own_children
        waiting += [process.pid for process in own_children]
    return found


def count_user_threads() -> int:
    """Return the number of threads of all processes of this process's user, as RLIMIT_NPROC counts them."""
    threads = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.geteuid() and (process := _read(name)):
                threads += process.threads
    return threads


def max_socket_bytes() -> int:
    """Return the maximum bytes that the sockets of this process's network namespace can hold.

    No process's memory includes them. Connections that nobody has accepted yet count, and so do sockets in flight.
    """
    with open("/proc/self/net/unix", "rb") as file:
        return (len(file.readlines()) - 1) * _SOCKET_BYTES


def longest_core_wait(without: int) -> float:
    """Return the longest time, in seconds, that a child of this process has waited for a core; 0.0 if unknown."""
    this, longest = _this(), 0.0
    for process in list_descendants(without):
        if process.parent == this:
            try:
                with open(f"/proc/{process.pid}/schedstat", "rb") as file:
                    longest = max(longest, int(file.read().split()[1]) / 1e9)
            except (OSError, IndexError):  # the child has ended, or this kernel keeps no such statistics
                pass
    return longest


def kill_processes(user: int) -> None:
    """Kill all processes of a user at once, however fast they fork. Needs the right to become that user."""
    child = os.fork()
    if child == 0:
        try:
            kernel.become(user)
            os.kill(-1, signal.SIGKILL)  # never before the line above: as root, it would kill the machine's processes
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def kill_group(leader: int) -> None:
    """Kill a process group at once, if any process of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill(pid: int) -> None:
    """Kill a process, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _this() -> int:
    # os.getpid() is the number in the innermost namespace; /proc may belong to an outer one.
    return int(os.readlink("/proc/self"))


def _read(pid: str) -> Process | None:
    try:
        text, status = _text(f"/proc/{pid}/stat"), _text(f"/proc/{pid}/status")
    except OSError:  # the process has ended meanwhile
        return None
    # The command's name comes second, in parentheses, and may itself hold spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    _, _, tables = status.partition(b"VmPTE:")  # absent if the process has ended
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        cpu_seconds=sum(map(int, fields[11:15])) / _TICKS_PER_SECOND,
        threads=int(fields[17]),
        held_bytes=int(fields[21]) * _PAGE_BYTES + (int(tables.split()[0]) << 10 if tables else 0),
    )


def _text(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)

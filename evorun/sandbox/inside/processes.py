"""What the processes below one use, as /proc tells it."""

import contextlib
import os
import signal
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    parent: int
    cpu_seconds: float
    """Its own and that of its children that it waited for."""
    threads: int
    resident_bytes: int


def below_this() -> list[Process]:
    """Return the descendants of this process, under the numbers that /proc gives to them."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read(name)) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [_this()]
    while waiting:
        next_ones = children.get(waiting.pop(), [])
        found += next_ones
        waiting += [process.pid for process in next_ones]
    return found


def longest_wait_for_a_core() -> float:
    """Return the seconds that a child of this process has been ready to run without running; 0.0 where unknown."""
    this = _this()
    return max((_wait_for_a_core(process.pid) for process in below_this() if process.parent == this), default=0.0)


def kill(pid: int) -> None:
    """Kill a process, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _this() -> int:
    """This process's number in /proc, which may be that of an outer namespace."""
    return int(os.readlink("/proc/self"))


def _wait_for_a_core(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):  # it has ended, or this kernel does not keep such books
        return 0.0


def _read(pid: str) -> Process | None:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            text = os.read(descriptor, 1024)
        finally:
            os.close(descriptor)
    except OSError:  # it has ended meanwhile
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        cpu_seconds=sum(map(int, fields[11:15])) / _TICKS_PER_SECOND,
        threads=int(fields[17]),
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )

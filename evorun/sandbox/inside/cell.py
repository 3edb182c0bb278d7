"""Confines a program's process before the program's first line runs."""

import fcntl
import math
import os
import resource
import signal
from typing import Any

from evorun.sandbox.inside import kernel, processes, syscalls

SCRATCH_FILES = 4096
"""Files in a program's folder (ours)."""
_SPARE_PROCESSES = 256  # further processes of the same user, which may start while a program runs (ours)
_PROC = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC  # flags of the original mount, which must stay
_MANY = 65536  # above every descriptor that this process can have


def enter(
    channels: dict[int, int],
    status: int,
    settings: dict[str, Any],
    scratch: str,
    limits: dict[str, Any],
    forbidden: syscalls.Filter,
) -> None:
    """Confine this freshly forked process to its namespaces and limits, in the folder `scratch`.

    `channels` maps the program's descriptors to ours. Writes `ready` or the reason for a failure to `status` and closes
    it, so that the program cannot forge either.
    """
    try:
        os.setsid()
        status = _arrange(channels, status)
        # As in a normal start. It must precede the filter, which rejects changes to SIGCHLD.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise the process would not own its files in /proc
        # If the machine's memory runs out, the kernel must kill this process, not its supervisor.
        kernel.write("/proc/self/oom_score_adj", "1000")
        if settings["namespaces"]:
            kernel.map_user(kernel.NOBODY, kernel.NOBODY, kernel.NOBODY)
            # No nested namespaces: they would give the program capabilities again.
            kernel.write("/proc/sys/user/max_user_namespaces", "0")
            options = f"size={limits['file_mib']}m,nr_inodes={SCRATCH_FILES},mode=0700"
            kernel.mount("scratch", scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
            _show_own_processes(scratch)
        if settings["user"] is not None:
            kernel.become(settings["user"])
        os.chdir(scratch)
        os.umask(0o077)
        _limit(settings, limits)
        kernel.drop_capabilities()
        if not settings["gvisor"]:  # there the whole namespace ends with the supervisor
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the supervisor
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise the program could not open /proc/self
        forbidden.enforce()
        os.write(status, b"ready")
    except BaseException as error:
        os.write(status, repr(error).encode())
        os._exit(1)
    os.close(status)


def _arrange(channels: dict[int, int], status: int) -> int:
    """Give the program its descriptors. Return that of the status pipe, the only other one left open."""
    # Move all above the wanted numbers first: a channel's present number may be another's wanted number.
    floor = max(channels) + 1
    high = {wanted: fcntl.fcntl(ours, fcntl.F_DUPFD, floor + 1) for wanted, ours in channels.items()}
    os.dup2(fcntl.fcntl(status, fcntl.F_DUPFD, floor + 1), floor)
    for wanted, ours in high.items():
        os.dup2(ours, wanted)
    os.closerange(floor + 1, _MANY)
    return floor


def _show_own_processes(scratch: str) -> None:
    """Replace /proc by one of only the program's processes: any other shows their numbers outside."""
    try:
        kernel.mount("proc", "/proc", "proc", kernel.MS_RDONLY | _PROC, "subset=pid")
    except OSError:
        # Where parts of /proc are hidden (Docker), the kernel allows no new mount of it. Two parts that show no process
        # numbers stay: the links to open files, for /dev/stdin, and the network, for the trial program.
        kept = [(f"{scratch}/{name}", f"/proc/self/{name}") for name in ("fd", "net")]
        for parked, place in kept:
            os.mkdir(parked)
            kernel.mount(place, parked, flags=kernel.MS_BIND)
        kernel.mount("proc", "/proc", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,nr_inodes=5,mode=0755")
        for parked, place in kept:
            os.makedirs(place)
            kernel.mount(parked, place, flags=kernel.MS_MOVE)
            kernel.mount("proc", place, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | _PROC)
            os.rmdir(parked)
        kernel.mount("proc", "/proc", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _limit(settings: dict[str, Any], limits: dict[str, Any]) -> None:
    file_size = limits["file_mib"] << 20
    # A backstop at twice the limit: the kernel uses sampled time, which may be 20 % off on a virtual machine. The
    # supervisor uses measured time.
    _set_limit(resource.RLIMIT_CPU, 2 * math.ceil(limits["cpu_seconds"]) + 1)
    _set_limit(resource.RLIMIT_AS, limits["memory_mib"] << 20)
    _set_limit(resource.RLIMIT_FSIZE, file_size)
    _set_limit(resource.RLIMIT_NOFILE, limits["open_files"])
    # 1, since 0 would still start a machine's handler of core dumps (systemd-coredump); see core(5).
    _set_limit(resource.RLIMIT_CORE, 1)
    _set_limit(resource.RLIMIT_MEMLOCK, 0)
    if not settings["gvisor"]:  # gVisor cannot set it
        _set_limit(resource.RLIMIT_MSGQUEUE, 0)
    if settings["own_process_count"]:
        _set_limit(resource.RLIMIT_NPROC, limits["processes"])
    elif not settings["namespaces"]:  # the user's other processes count too, and may increase meanwhile
        others = processes.count_user_threads()
        _set_limit(resource.RLIMIT_NPROC, others + limits["processes"] + _SPARE_PROCESSES)


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]  # an unprivileged process can only lower a limit
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))

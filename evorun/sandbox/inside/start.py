"""Turns a fresh interpreter into a supervisor with its template: gives up privileges, then serves."""

import contextlib
import os
import secrets
import signal
import sys
from typing import Any, NoReturn

from evorun.sandbox.inside import kernel, relay, root, supervisor


def start(control: int, settings: dict[str, Any]) -> NoReturn:
    """Serve on `control`; `settings` are those of `launch.Launch`. Raises OSError when the kernel refuses a step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side ends this process when it is interrupted
    if settings["gvisor"]:
        control = relay.enter(control)
    if settings["build_root"]:
        _enter_root(settings["layout"])
    if settings["give_up_root"]:
        # A different user per zygote: the kernel's counts per user (pages in pipes) then concern only its programs.
        kernel.become(_private_user())
    settings["user"] = _private_user() if settings["private_user"] else None
    if settings["namespaces"]:
        _enter_own_process_namespace(settings["layout"]["devices"])
    else:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # otherwise a program of the same user could open our memory
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # a program's orphans become our children
    if settings["namespaces"]:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # otherwise descendants would outlive the parent
    sys.path[:] = [path for path in sys.path if path] + settings["packages"]
    sys.path_importer_cache.clear()
    # If a program unmaps most of a huge page, the whole page stays, but only the rest counts.
    with contextlib.suppress(OSError):  # gVisor's kernel has no huge pages
        kernel.prctl(kernel.PR_SET_THP_DISABLE, 1)
    supervisor.serve(control, settings)


def _private_user() -> int:
    """Return a user that nobody else has: its process limit and its signals concern only our programs."""
    # First from a range that nothing assigns (systemd's UIDs-GIDs.md), then, if few are mapped, above the usual users.
    for lowest, highest in ((1_900_000_000, 2_100_000_000), (30_000, 60_000)):
        user = lowest + secrets.randbelow(highest - lowest)
        if _is_mapped("uid", user) and _is_mapped("gid", user):
            return user
    raise PermissionError("this user namespace has no user but root, and programs do not run as root")


def _is_mapped(kind: str, number: int) -> bool:
    with open(f"/proc/self/{kind}_map") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= number < first + count for first, _, count in ranges)


def _enter_root(layout: dict[str, Any]) -> None:
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    try:
        kernel.unshare(flags)
    except PermissionError:  # not root: a user namespace gives the permission
        kernel.new_user_namespace(flags, kernel.NOBODY)
    with contextlib.suppress(OSError):  # kernels without cgroups; elsewhere it hides the names of ours
        kernel.unshare(kernel.CLONE_NEWCGROUP)
    root.enter(layout, layout["scratch"])


def _enter_own_process_namespace(devices: list[str]) -> None:
    """Continue in a child that has all capabilities in new namespaces, and none elsewhere."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise the user map could not be written
    kernel.new_user_namespace(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS, kernel.NOBODY)
    root.protect_device_times(devices)
    child = os.fork()
    if child != 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    # The namespace's /proc is faster to search than the machine's, and lets the kernel mount one for each program. If
    # parts of the machine's are hidden (Docker), the kernel allows none.
    with contextlib.suppress(OSError):
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)

"""Linux system calls that the standard library of Python 3.11 lacks."""

import ctypes
import os
import signal
from typing import Any

CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_THP_DISABLE = 41
_PR_GET_TID_ADDRESS = 40

NOBODY = 65534
"""A user and group without any rights."""

_CAPABILITY_VERSION_3 = 0x20080522
_OF_THIS_PROCESS = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)  # built once: a new array type takes 0.1 ms
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


_CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x00200000, 0x01000000
_CLONE = {"x86_64": 56, "aarch64": 220}
# Also from the C library, but holding the interpreter's lock, as the functions around a fork require.
_clone = ctypes.PyDLL(None, use_errno=True).syscall
_clone.argtypes = (ctypes.c_long, ctypes.c_ulong, *(ctypes.c_void_p,) * 4)


def fork(flags: int = 0, exit_signal: int = signal.SIGCHLD) -> int:
    """Fork like os.fork, with flags of clone(2) and a signal when the child ends. Raises OSError."""
    number = _CLONE[os.uname().machine]
    # The C library keeps a thread's id in the thread's memory, which the kernel must update.
    place = ctypes.c_void_p()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(place), 0, 0, 0) == 0:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    ctypes.pythonapi.PyOS_BeforeFork()
    # Pass the place twice: machines differ in the order of the last two arguments, and the other one is unused.
    child: int = _clone(number, flags | exit_signal, None, None, place, place)
    if child == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if child < 0:
        raise OSError(ctypes.get_errno(), f"clone: {os.strerror(ctypes.get_errno())}")
    return child


def unshare(flags: int) -> None:
    """Move this process to new namespaces (its next children to a new process namespace). Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """Mount `source` at `target`. Raises OSError."""
    encoded = None if kind is None else kind.encode()
    _check(_libc.mount(source.encode(), target.encode(), encoded, flags, options.encode()), f"mount {target}")


def system_call(number: int, *arguments: Any) -> None:
    """Make a system call that the C library may not know yet. Raises OSError."""
    _check(_libc.syscall(number, *arguments), f"system call {number}")


def prctl(option: int, argument: int) -> None:
    """Set an attribute of this process. Raises OSError."""
    _check(_libc.prctl(option, argument, 0, 0, 0), f"prctl {option}")


def drop_capabilities() -> None:
    """Give up every capability, for executed programs too. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc.capset(_OF_THIS_PROCESS, _NO_CAPABILITIES), "capset")


def new_user_namespace(flags: int, inner: int) -> None:
    """Enter new namespaces, where the present user and group appear as `inner`. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | flags)
    map_user(user, group, inner)


def map_user(user: int, group: int, inner: int) -> None:
    """Let a user and a group appear as `inner` in this process's user namespace. Raises OSError."""
    write("/proc/self/setgroups", "deny")  # the kernel requires it before an unprivileged gid_map
    write("/proc/self/uid_map", f"{inner} {user} 1")
    write("/proc/self/gid_map", f"{inner} {group} 1")


def become(user: int) -> None:
    """Switch permanently to a user and the group of the same number. Raises OSError."""
    os.setgroups([])  # groups before the user: afterwards this process may no longer change them
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def write(path: str, text: str) -> None:
    """Write to a file of /proc in one call, as the kernel requires for ID maps. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")

"""A seccomp filter: programs may only make the system calls that correct programs were seen to make."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from evorun.sandbox.inside import kernel

# scripts/record_system_calls.py records the calls of programs; other C libraries and machines make some of them under
# other names. setsid and eventfd are missing on purpose. The kernel numbers sessions and event descriptors for the
# whole machine and shows the numbers (/proc/self/autogroup, fdinfo). Programs could tell how many others had made.
# The numbers are for x86_64 and for aarch64, which lacks the older calls.
# fmt: off
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # files
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62), "open": (2, None),
    "openat": (257, 56), "openat2": (437, 437), "creat": (85, None), "close": (3, 57), "close_range": (436, 436),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17),
    "chdir": (80, 49), "fchdir": (81, 50), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82),
    "fdatasync": (75, 83), "umask": (95, 166), "statfs": (137, 43), "fstatfs": (138, 44), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None),
    "pipe2": (293, 59),
    # events
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    # sockets
    "accept": (43, 202), "accept4": (288, 242), "connect": (42, 203), "listen": (50, 201),
    "getpeername": (52, 205), "getsockname": (51, 204), "getsockopt": (55, 209), "shutdown": (48, 210),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212),
    # memory
    "brk": (12, 214), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "msync": (26, 227),
    "mbind": (237, 235),
    # processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "exit": (60, 93),
    "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgid": (121, 155),
    "getpgrp": (111, None), "getsid": (124, 156), "setpgid": (109, 154),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "getrusage": (98, 165), "getpriority": (140, 141), "times": (100, 153),
    "uname": (63, 160), "sysinfo": (99, 179), "getcpu": (309, 168), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "arch_prctl": (158, None),
    "set_tid_address": (218, 96), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
    "futex": (202, 98), "futex_waitv": (449, 449), "restart_syscall": (219, 128),
    # signals
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    # time
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, None), "getrandom": (318, 278),
}
# fmt: on

# Classic BPF: operations, and offsets in `struct seccomp_data` (for an argument, of its lower half).
_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_ALLOW, _KILL, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS

Line = tuple[int, int, int, int]
"""An instruction: operation, lines to skip if true, lines to skip if false, operand."""


def _argument(number: int) -> Line:
    return (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET + 8 * number)


def _require_one_of(argument: int, *values: int) -> list[Line]:
    """Refuse a call unless an argument has one of these values."""
    tests = [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [_argument(argument), *tests, (_RETURN, 0, 0, _REFUSE)]


def _refuse_any(argument: int, *values: int) -> list[Line]:
    """Refuse a call if an argument has one of these values."""
    tests = [line for value in values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSE))]
    return [_argument(argument), *tests]


def _refuse_bits(argument: int, bits: int) -> list[Line]:
    """Refuse a call if an argument has one of these bits."""
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), (_RETURN, 0, 0, _REFUSE)]


_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x1, 0x20, 0x40000
_MADV_COLD, _MADV_PAGEOUT = 20, 21
# CLONE_NEWTIME | NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_NEW_NAMESPACES = 0x7E020080
_CLONE_PIDFD, _CLONE_PARENT = 0x1000, 0x8000
_AF_UNIX = 1
_DATAGRAM_BIT = 2  # of the type of a socket: set in SOCK_DGRAM and SOCK_RAW
_SO_SNDBUF, _SO_RCVBUF, _SO_PASSCRED = 7, 8, 16
_LENGTH_OF_NO_NAME = 2
_SIGCHLD = 17
# F_DUPFD, GETFD, SETFD, GETFL, SETFL, SETLK, SETLKW, OFD_SETLK, OFD_SETLKW, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS
_FILE_COMMANDS = (0, 1, 2, 3, 4, 6, 7, 37, 38, 1030, 1032, 1034)
# TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_DEVICE_COMMANDS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_SET_PDEATHSIG, GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME
_OWN_ATTRIBUTES = (1, 2, 3, 15, 16)
# Streams only: a queue of datagrams also holds those of ended senders, so it may exceed the estimate from the number of
# sockets (`processes.max_socket_bytes`). No buffer may grow, for the same reason.
_UNIX_STREAM = [*_require_one_of(0, _AF_UNIX), *_refuse_bits(1, _DATAGRAM_BIT)]
# Calls whose arguments are checked, with the checks.
CHECKED: dict[str, tuple[int, int, list[Line]]] = {
    # Shared memory without a file counts for no process once it leaves the page table.
    "mmap": (
        9,
        222,
        [
            *_refuse_bits(3, _MAP_HUGETLB),
            _argument(3),
            (_ANY_BIT, 0, 2, _MAP_ANONYMOUS),
            (_ANY_BIT, 0, 1, _MAP_SHARED),
            (_RETURN, 0, 0, _REFUSE),
        ],
    ),
    # Programs must not change the kernel's cache of files that all programs see.
    "madvise": (28, 233, _refuse_any(2, _MADV_COLD, _MADV_PAGEOUT)),
    # A PIDFD's inode number counts all processes of the machine.
    "clone": (56, 220, _refuse_bits(0, _NEW_NAMESPACES | _CLONE_PIDFD | _CLONE_PARENT)),
    "socket": (41, 198, _UNIX_STREAM),
    "socketpair": (53, 199, _UNIX_STREAM),
    # Before Linux 6.0, a name that the kernel chooses reveals how many the whole machine has.
    "bind": (49, 200, _refuse_any(2, _LENGTH_OF_NO_NAME)),
    "setsockopt": (54, 208, _refuse_any(2, _SO_SNDBUF, _SO_RCVBUF, _SO_PASSCRED)),
    # The kernel forgets the CPU time of children whose parent ignores their end, and counts that of all others.
    "rt_sigaction": (13, 134, _refuse_any(0, _SIGCHLD)),
    # Without locks on others, leases and notices, which would let programs communicate, and without longer pipes.
    "fcntl": (72, 25, _require_one_of(1, *_FILE_COMMANDS)),
    "ioctl": (16, 29, _require_one_of(1, *_DEVICE_COMMANDS)),
    "prctl": (157, 167, _require_one_of(0, *_OWN_ATTRIBUTES)),
    # For this process only; 0 also means PRIO_PROCESS.
    "prlimit64": (302, 261, _require_one_of(0, 0)),
    "setpriority": (141, 140, [*_require_one_of(0, 0), *_require_one_of(1, 0)]),
    "sched_setaffinity": (203, 122, _require_one_of(0, 0)),
}
# By machine: the column of numbers above, and the kernel's identifier (AUDIT_ARCH_*).
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# From this number on, the same on every architecture, the filter answers as if the kernel were too old for a forbidden
# call. Programs then fall back to older calls.
_FIRST_NEW_CALL = 424
# From here on, numbers on x86_64 belong to another calling convention (x32).
_FOREIGN_CALLS = 0x40000000

_SECCOMP = (317, 277)
_SET_MODE_FILTER = 1
_KEEP_SPECULATION = 4


class Filter:
    """A seccomp filter, built once and enforced in each program's process."""

    def __init__(self, unix_sockets: bool) -> None:
        """unix_sockets: allow sockets between this machine's processes, in addition to socket pairs.

        Raises OSError on machines whose system call numbers are unknown.
        """
        machine = os.uname().machine
        if machine not in _ARCHITECTURES:
            raise OSError(
                errno.ENOSYS, f"no filter of system calls for {machine}, only for {', '.join(_ARCHITECTURES)}"
            )
        column, architecture = _ARCHITECTURES[machine]
        self._number = _SECCOMP[column]
        instructions = b"".join(struct.pack("=HBBI", *line) for line in _assemble(column, architecture, unix_sockets))
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        address = ctypes.addressof(self._buffer)
        self._program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions) // 8, address))

    def enforce(self) -> None:
        """Refuse all other calls of this process and its children permanently. Needs no_new_privs. Raises OSError."""
        try:
            kernel.system_call(self._number, _SET_MODE_FILTER, _KEEP_SPECULATION, self._program)
        except OSError:  # gVisor's kernel does not know the flag
            kernel.system_call(self._number, _SET_MODE_FILTER, 0, self._program)


def _assemble(column: int, architecture: int, unix_sockets: bool) -> list[Line]:
    """Return the filter in classic BPF."""
    lines: list[Line] = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),  # numbers mean other calls on another architecture
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    for name, (*numbers, check) in CHECKED.items():
        if name != "socket" or unix_sockets:
            answer = [*check, (_RETURN, 0, 0, _ALLOW)]
            lines += [(_EQUAL, 0, len(answer), numbers[column]), *answer]
    # By ranges, in order: the kernel runs the filter for each number whenever a program starts.
    for first, last in _ranges(number for pair in ALLOWED.values() if (number := pair[column]) is not None):
        refusal = _UNKNOWN if first > _FIRST_NEW_CALL else _REFUSE
        lines += [(_AT_LEAST, 1, 0, first), (_RETURN, 0, 0, refusal), (_ABOVE, 1, 0, last), (_RETURN, 0, 0, _ALLOW)]
    return [*lines, (_AT_LEAST, 0, 1, _FOREIGN_CALLS), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _UNKNOWN)]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found

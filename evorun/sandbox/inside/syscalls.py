"""A seccomp filter of the system calls that no program needs and that reach past the other walls."""

import ctypes
import errno
import os
import struct

from evorun.sandbox.inside import kernel

# Memory that no limit counts, stores that outlive a process, other processes' memory, namespaces and mounts, and parts
# of the kernel with a history of vulnerabilities. Numbers for x86_64 and for aarch64.
_REFUSED = {
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}
# Calls from this number on, the same on every architecture, are refused as if the kernel were too old for them, but
# for those listed: mounts, rings (io_uring), hidden memory, and whatever kernels to come will add.
_FIRST_NEW_CALL = 424
_ALLOWED_NEW_CALLS = {
    "pidfd_send_signal": 424,
    "pidfd_open": 434,
    "close_range": 436,
    "openat2": 437,
    "faccessat2": 439,
    "epoll_pwait2": 441,
    "futex_waitv": 449,
    "fchmodat2": 452,
}
_CLONE = (56, 220)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_SOCKET, _SOCKETPAIR, _SETSOCKOPT, _SIGACTION = (41, 198), (53, 199), (54, 208), (13, 134)
_AF_UNIX = 1
_DATAGRAM_BIT = 2  # of the type of a socket: set in SOCK_DGRAM and SOCK_RAW
_SO_SNDBUF, _SO_RCVBUF = 7, 8
_SIGCHLD = 17
# By machine: the column of the numbers above, and the kernel's identifier (AUDIT_ARCH_*).
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# From here on, x86_64 numbers are those of another calling convention (x32), which would pass the list by.
_FOREIGN_CALLS = 0x40000000

# Classic BPF: operations, and the offsets in `struct seccomp_data` (of an argument, its lower half).
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_ALLOW, _KILL, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS

_SECCOMP = (317, 277)
_SET_MODE_FILTER = 1
_KEEP_SPECULATION = 4


class Filter:
    """A filter, built once and enforced in one process after another."""

    def __init__(self, unix_sockets: bool) -> None:
        """Build it; unix_sockets: allow sockets between the processes of this machine, beside pairs of them.

        Raises OSError on machines whose numbers of system calls it does not know.
        """
        machine = os.uname().machine
        if machine not in _ARCHITECTURES:
            raise OSError(
                errno.ENOSYS, f"no filter of system calls for {machine}, only for {', '.join(_ARCHITECTURES)}"
            )
        column, architecture = _ARCHITECTURES[machine]
        self._number = _SECCOMP[column]
        instructions = _assemble(column, architecture, unix_sockets)
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        address = ctypes.addressof(self._buffer)
        self._program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions) // 8, address))

    def enforce(self) -> None:
        """Refuse the calls to this process and its children for good; needs no_new_privs. Raises OSError."""
        kernel.system_call(self._number, _SET_MODE_FILTER, _KEEP_SPECULATION, self._program)


def _assemble(column: int, architecture: int, unix_sockets: bool) -> bytes:
    """Return the filter in classic BPF: operation, lines to skip if true, lines to skip if false, operand."""
    refused = [numbers[column] for numbers in _REFUSED.values()] + ([] if unix_sockets else [_SOCKET[column]])
    # Streams only: a queue of datagrams holds those of senders that are gone, and so more than the number of sockets
    # tells (`processes.socket_bytes`); for the same reason no buffer may grow.
    unix_stream = (0, (_EQUAL, 1, 0, _AF_UNIX)), (1, (_ANY_BIT, 0, 1, _DATAGRAM_BIT))
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),  # another architecture's numbers mean other calls
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        *_answer(_AT_LEAST, _FOREIGN_CALLS, _REFUSE),
        *(line for number in _ALLOWED_NEW_CALLS.values() for line in _answer(_EQUAL, number, _ALLOW)),
        *_answer(_AT_LEAST, _FIRST_NEW_CALL, _UNKNOWN),
        *(line for number in refused for line in _answer(_EQUAL, number, _REFUSE)),
        *_by_argument(_CLONE[column], (0, (_ANY_BIT, 0, 1, _NEW_NAMESPACES))),
        *_by_argument(_SOCKET[column], *unix_stream),
        *_by_argument(_SOCKETPAIR[column], *unix_stream),
        *_by_argument(_SETSOCKOPT[column], (2, (_EQUAL, 0, 1, _SO_SNDBUF)), (2, (_EQUAL, 0, 1, _SO_RCVBUF))),
        # The kernel forgets the CPU time of children whose parent ignores their end; all others are counted.
        *_by_argument(_SIGACTION[column], (0, (_EQUAL, 0, 1, _SIGCHLD))),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _answer(operation: int, number: int, answer: int) -> list[tuple[int, int, int, int]]:
    """Return the lines that give an answer to the calls whose number compares so."""
    return [(operation, 0, 1, number), (_RETURN, 0, 0, answer)]


def _by_argument(number: int, *checks: tuple[int, tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the lines that answer a call by its arguments: refused unless each check's comparison skips a line."""
    lines: list[tuple[int, int, int, int]] = []
    for argument, comparison in checks:
        lines += [(_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET + 8 * argument), comparison, (_RETURN, 0, 0, _REFUSE)]
    lines += [(_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(lines), number), *lines]

"""System calls that no program needs and that reach past the other walls, refused by a seccomp filter."""

import ctypes
import errno
import os
import struct

from evorun.sandbox.inside import kernel

# Memory that no limit counts, stores that outlive a process, other processes' memory, namespaces and mounts, and parts
# of the kernel with a history of vulnerabilities. Numbers for x86_64 and for aarch64.
_REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
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
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
# By machine: the column of the numbers above, and the kernel's identifier (AUDIT_ARCH_*).
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# From here on, x86_64 numbers are those of another calling convention (x32), which would pass the list by.
_FOREIGN_CALLS = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM

_SECCOMP = (317, 277)
_SET_MODE_FILTER = 1
_KEEP_SPECULATION = 4


class Filter:
    """A filter, built once and enforced in one process after another. Does nothing on other machines."""

    def __init__(self) -> None:
        machine = os.uname().machine
        self._number = 0
        self._instructions = b""
        if machine in _ARCHITECTURES:
            column, architecture = _ARCHITECTURES[machine]
            self._number = _SECCOMP[column]
            self._instructions = _assemble([numbers[column] for numbers in _REFUSED.values()], architecture)
        self._buffer = ctypes.create_string_buffer(self._instructions, len(self._instructions))
        address = ctypes.addressof(self._buffer)
        self._program = ctypes.create_string_buffer(struct.pack("@HP", len(self._instructions) // 8, address))

    def enforce(self) -> None:
        """Refuse the calls to this process and its children for good; needs no_new_privs. Raises OSError."""
        if self._number:
            kernel.system_call(self._number, _SET_MODE_FILTER, _KEEP_SPECULATION, self._program)


def _assemble(refused: list[int], architecture: int) -> bytes:
    # Classic BPF: operation, lines to skip if true, lines to skip if false, operand. A call of another architecture
    # kills the process, since its numbers mean other calls.
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        (_AT_LEAST, len(refused) + 1, 0, _FOREIGN_CALLS),
        *((_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)

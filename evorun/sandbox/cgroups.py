"""A memory cgroup (version 2) for each slot, if this process may create cgroups: the kernel then counts all memory.

Without cgroups, only the memory that `/proc` shows for processes counts.
"""

import contextlib
import itertools
import os
import subprocess
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
HOW_TO_ENABLE = "systemd-run --user --scope -p Delegate=yes evorun ...; docs/sandbox.md"
# Allowance beyond `memory_mib` for the tables and stacks that the kernel keeps for a program's processes (ours).
_KERNEL_BYTES = 16 << 20
_PREFIX = "evorun-sandbox-"
_numbers = itertools.count()


class MemoryGroup:
    """A cgroup for one zygote and its programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wrap_command(self, command: list[str]) -> list[str]:
        """Return a command that starts `command` in the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def limit(self, memory_bytes: int) -> None:
        """Bound the memory that the next program may add to the group's present use. Raises OSError."""
        held = int((self._folder / "memory.current").read_text())
        (self._folder / "memory.max").write_text(str(held + memory_bytes + _KERNEL_BYTES))

    def kills(self) -> int:
        """Return the number of processes that the kernel has killed in the group to free memory. Raises OSError."""
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        return int(events["oom_kill"])

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def find_parent_group() -> Path | None:
    """Return the cgroup below which this process may create others with a memory limit, or None.

    A process that is alone in its cgroup moves to a child of it, since only leaves may hold processes.
    """
    with contextlib.suppress(OSError, StopIteration):
        own = own_cgroup()
        with contextlib.suppress(OSError):
            if "memory" in (own / "cgroup.controllers").read_text() and _holds_only_us(own):
                leaf = own / f"{_PREFIX}runner"
                leaf.mkdir(exist_ok=True)
                (leaf / "cgroup.procs").write_text(str(os.getpid()))
                (own / "cgroup.subtree_control").write_text("+memory")
        # The groups go below this process's cgroup, or beside it.
        for folder in (own, own.parent):
            if folder.is_relative_to(MOUNT) and _works(folder):
                _remove_stale_groups(folder)
                return folder
    return None


def own_cgroup() -> Path:
    """Return the folder of this process's cgroup. Raises OSError, or StopIteration without cgroups of version 2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return MOUNT / next(line[3:] for line in lines if line.startswith("0::")).strip("/")


def make_memory_group(parent: Path) -> MemoryGroup:
    """Make a group. Raises OSError."""
    folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
    folder.mkdir()
    with contextlib.suppress(OSError):  # kernels without swap lack this file
        (folder / "memory.swap.max").write_text("0")
    return MemoryGroup(folder)


def _holds_only_us(folder: Path) -> bool:
    return (folder / "cgroup.procs").read_text().split() == [str(os.getpid())]


def _works(folder: Path) -> bool:
    """Return whether this process can create a group with a limit in a folder, and start a process in it."""
    try:
        if "memory" not in (folder / "cgroup.subtree_control").read_text():
            return False
        group = make_memory_group(folder)
    except OSError:
        return False
    try:
        group.limit(0)
        done = subprocess.run(group.wrap_command(["true"]), capture_output=True, check=False)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        group.remove()


def _remove_stale_groups(parent: Path) -> None:
    """Remove the groups of processes that were killed before they could remove them."""
    for folder in parent.glob(f"{_PREFIX}[0-9]*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            MemoryGroup(folder).remove()

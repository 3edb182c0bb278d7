"""A memory cgroup (version 2) for each slot, where this process may make any: the kernel then counts all that it holds.

Without one, what is counted is what `/proc` shows of processes.
"""

import contextlib
import itertools
import os
import subprocess
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
HOW_TO_GET_ONE = "systemd-run --user --scope -p Delegate=yes evorun ...; docs/sandbox.md"
# What a program may hold beyond `memory_mib`: the tables and stacks that the kernel keeps for its processes (ours).
_KERNEL_BYTES = 16 << 20
_PREFIX = "evorun-sandbox-"
_numbers = itertools.count()


class MemoryGroup:
    """A cgroup for one zygote and its programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def started_in_it(self, command: list[str]) -> list[str]:
        """Return a command that starts another one in the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def limit(self, memory_bytes: int) -> None:
        """Bound what the next program may add to what the group holds now. Raises OSError."""
        held = int((self._folder / "memory.current").read_text())
        (self._folder / "memory.max").write_text(str(held + memory_bytes + _KERNEL_BYTES))

    def kills(self) -> int:
        """Return how many processes the kernel has killed in the group for want of memory. Raises OSError."""
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        return int(events["oom_kill"])

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def parent_of_groups() -> Path | None:
    """Return the cgroup below which this process may make others with a limit on memory, or None.

    A process that is alone in its cgroup moves to one below it, since only leaves may hold processes.
    """
    with contextlib.suppress(OSError, StopIteration):
        own = own_cgroup()
        with contextlib.suppress(OSError):
            if "memory" in (own / "cgroup.controllers").read_text() and _holds_us_alone(own):
                leaf = own / f"{_PREFIX}runner"
                leaf.mkdir(exist_ok=True)
                (leaf / "cgroup.procs").write_text(str(os.getpid()))
                (own / "cgroup.subtree_control").write_text("+memory")
        # From a cgroup of its own or of another program's making: below it or beside it.
        for folder in (own, own.parent):
            if folder.is_relative_to(MOUNT) and _works(folder):
                _remove_left_ones(folder)
                return folder
    return None


def own_cgroup() -> Path:
    """Return the folder of this process's cgroup. Raises OSError, StopIteration where there is none of version 2."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return MOUNT / next(line[3:] for line in lines if line.startswith("0::")).strip("/")


def make_group(parent: Path) -> MemoryGroup:
    """Make a group. Raises OSError."""
    folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
    folder.mkdir()
    with contextlib.suppress(OSError):  # a kernel without swap has no such file
        (folder / "memory.swap.max").write_text("0")
    return MemoryGroup(folder)


def _holds_us_alone(folder: Path) -> bool:
    return (folder / "cgroup.procs").read_text().split() == [str(os.getpid())]


def _works(folder: Path) -> bool:
    """Return whether a group with a limit can be made in a folder, and a process started in it."""
    try:
        if "memory" not in (folder / "cgroup.subtree_control").read_text():
            return False
        group = make_group(folder)
    except OSError:
        return False
    try:
        group.limit(0)
        done = subprocess.run(group.started_in_it(["true"]), capture_output=True, check=False)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        group.remove()


def _remove_left_ones(parent: Path) -> None:
    """Remove groups of processes that were killed before they could."""
    for folder in parent.glob(f"{_PREFIX}[0-9]*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            MemoryGroup(folder).remove()

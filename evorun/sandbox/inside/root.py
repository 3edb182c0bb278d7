"""A root folder that holds an interpreter and nothing else, for machines without bubblewrap."""

import ctypes
import os
from typing import Any

from evorun.sandbox.inside import kernel

_MOUNT_SETATTR = 442  # the same on every architecture
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_NOSUID = 0x2
_READ_ONLY = 0x1
_NODEV = 0x4


def enter(layout: dict[str, Any], where: str) -> None:
    """Build the layout (see `launch.Layout`) over the folder `where` and make it this process's root.

    Needs CAP_SYS_ADMIN over a separate mount namespace. Raises OSError.
    """
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)  # mounts do not propagate outside
    # Keep them open: the new root hides paths below `where` as soon as it covers them.
    packages = [(os.open(path, os.O_PATH), target) for path, target in layout["packages"]]
    shown = [(os.open(path, os.O_PATH), path) for path in layout["shown"]]
    kernel.mount("root", where, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=0755")
    for source, target in shown:
        _bind(f"/proc/self/fd/{source}", where + target, _READ_ONLY | _NOSUID | _NODEV)
    for path in layout["hidden"]:
        kernel.mount("hidden", where + path, "tmpfs", kernel.MS_RDONLY, "size=4k")
    for source, target in packages:
        _bind(f"/proc/self/fd/{source}", where + target, _READ_ONLY | _NOSUID | _NODEV)
    for path, target in layout["links"]:
        os.makedirs(os.path.dirname(where + path), exist_ok=True)
        os.symlink(target, where + path)
    for path in layout["devices"]:
        _bind(path, where + path, _NOSUID)
    os.mkdir(where + "/proc")
    kernel.mount("/proc", where + "/proc", flags=kernel.MS_BIND | kernel.MS_REC)
    os.mkdir(where + layout["scratch"])
    # Make the root read-only last, after creating the mount points in it.
    kernel.mount("root", where, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)
    for source, _ in (*packages, *shown):
        os.close(source)
    # Move the root: a privileged process could leave a chroot.
    os.chdir(where)
    kernel.mount(where, "/", flags=kernel.MS_MOVE)
    os.chroot(".")
    os.chdir("/")


def _bind(source: str, target: str, attributes: int) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    _set_attributes(target, attributes)


def protect_device_times(paths: list[str]) -> None:
    """Make mounts of devices read-only: programs can still write to a device, but not set its file times.

    The times stay on the machine, where later programs could read them. Raises OSError.
    """
    for path in paths:
        _set_attributes(path, _READ_ONLY)


def _set_attributes(target: str, attributes: int) -> None:
    # mount_setattr, since MS_REMOUNT changes only the topmost of nested mounts.
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    kernel.system_call(
        _MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, ctypes.byref(wanted), ctypes.sizeof(wanted)
    )

"""Measures and removes a program's scratch folder where it lies on this machine's disk."""

import contextlib
import itertools
import os
import secrets

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def is_larger(folder: str, max_bytes: int, max_files: int) -> bool:
    """Return whether a folder holds more bytes or files than allowed; an unreadable folder counts as larger."""
    total, number = 0, 0
    waiting = [folder]
    while waiting:
        try:
            for entry in os.scandir(waiting.pop()):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                number += 1
                if total > max_bytes or number > max_files:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:  # no permission, or a path too long for the kernel
            return True
    return False


def remove(folder: str) -> None:
    """Remove a folder of any depth, with any links and permissions in it. Raises OSError."""
    top = os.open(folder, _FOLDER)
    try:
        # Move each nested folder to the top before emptying it: nothing recurses, and no path gets long. Names are
        # relative to open folders, so that a process that outlives its program cannot lead us elsewhere.
        free_names = (f"{secrets.token_hex(16)}-{number}" for number in itertools.count())
        waiting = ["."]
        while waiting:
            name = waiting.pop()
            opened = os.open(name, _FOLDER, dir_fd=top)
            try:
                for entry in list(os.scandir(opened)):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(next(free_names))
                        if os.geteuid() != 0:  # root needs no permission, and chmod would follow a link
                            os.chmod(entry.name, 0o700, dir_fd=opened)
                        os.rename(entry.name, waiting[-1], src_dir_fd=opened, dst_dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=opened)
            finally:
                os.close(opened)
            if name != ".":
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)

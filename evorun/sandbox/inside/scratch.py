"""A program's own folder, where it is one of this machine's: its size, and its removal."""

import contextlib
import itertools
import os
import secrets

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def is_larger(folder: str, most_bytes: int, most_files: int) -> bool:
    """Return whether a folder holds more bytes or files; what cannot be looked into counts as more."""
    total, number = 0, 0
    waiting = [folder]
    while waiting:
        try:
            for entry in os.scandir(waiting.pop()):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                number += 1
                if total > most_bytes or number > most_files:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:  # without rights, or below a path too long for the kernel
            return True
    return False


def remove(folder: str) -> None:
    """Remove a folder, however deep it is and whatever links and missing rights it holds. Raises OSError."""
    top = os.open(folder, _FOLDER)
    try:
        # Each nested folder is moved to the top before it is emptied: nothing recurses, and no path gets long. Names
        # are relative to open folders, so that a process that has outlived its program cannot lead us elsewhere.
        free_names = (f"{secrets.token_hex(16)}-{number}" for number in itertools.count())
        waiting = ["."]
        while waiting:
            name = waiting.pop()
            opened = os.open(name, _FOLDER, dir_fd=top)
            try:
                for entry in list(os.scandir(opened)):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(next(free_names))
                        if os.geteuid() != 0:  # root needs no rights, and would follow a link here
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

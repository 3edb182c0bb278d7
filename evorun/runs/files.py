"""Files in a run's folder, which may come from somebody else: writes stay inside it, and reads are bounded."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from evorun.errors import RunDirectoryError
from evorun.runs.paths import display

T = TypeVar("T")

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Last bytes of an SQLite rollback journal that names a super-journal (sqlite.org/fileformat2.html, section 3)."""


MAX_RECORD = 64 << 20
"""Maximum bytes of a line, or of a file read as a whole (ours): evorun writes neither that long."""

_LOCK_ATTEMPTS = 5
_LOCK_PAUSE_S = 0.02
"""Seconds between two attempts to take a lock (ours): `is_locked` holds it for some microseconds."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError, also for a pipe or a device, which may never end."""
    # non-blocking: opening a pipe would wait for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError, also for more than `MAX_RECORD` bytes."""
    with open_regular(path) as file:
        content = file.read(MAX_RECORD + 1)
    if len(content) > MAX_RECORD:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def read_json(file: Path, kind: type[T], *, missing: str | None = None) -> T:
    """Return what a JSON file in a run's or a study's folder holds. Raises RunDirectoryError.

    missing: the error's text where there is no such file.
    """
    try:
        return msgspec.json.decode(read_regular(file), type=kind)
    except OSError as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        unread = f"cannot read {display(file)}: {error.strerror}"
        raise RunDirectoryError(missing if missing and absent else unread) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunDirectoryError(f"{display(file)} is malformed: {error}") from error


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; a line longer than `MAX_RECORD` bytes comes in pieces without a line end."""
    return iter(lambda: file.readline(MAX_RECORD), b"")


@contextlib.contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` atomically once the block ends without an error.

    A crash leaves the old file or the new one. A link at `path` is replaced, not followed. Raises OSError.
    """
    # x: exclusive, so that no link is followed; a random name, so that nobody can plant one there
    temporary = path.with_name(f".evorun-{secrets.token_hex(8)}.tmp")
    with temporary.open("xb") as file:
        try:
            yield file
            # flushed before the rename: otherwise a power cut could leave an empty file in place of the old one
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def open_lock(path: Path) -> int:
    """Open a lock file, created when missing, and return its descriptor. Raises OSError, also for a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def take_lock(path: Path) -> int:
    """Lock a file, created when missing, and return its descriptor: closing it releases the lock.

    Raises BlockingIOError where a process holds the lock, another OSError for a file that cannot be opened, as a link.
    """
    descriptor = open_lock(path)
    try:
        # the kernel releases it when the process dies: a killed process leaves no stale lock behind
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == _LOCK_ATTEMPTS - 1:
                    raise
            time.sleep(_LOCK_PAUSE_S)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock file, without creating it; False for what is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            # shared and for no time: `take_lock` of a process that starts just now tries again
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def showing_work(path: Path) -> Iterator[None]:
    """Hold a lock file while the block runs, so that others see the work; go on without it where that is impossible."""
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = take_lock(path)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def reject_links(folder: Path) -> None:
    """Raise RunDirectoryError for anything that would lead a writer out of a run's folder or block it forever.

    Check this once, before the first file is written: SQLite, PyTorch and PEFT write here too and follow links.
    """
    for entry in _regular_files(folder, "written"):
        if entry.stat(follow_symlinks=False).st_nlink > 1:
            raise RunDirectoryError(
                f"{entry.path} has another name elsewhere (a hard link), whose file would be written, too: "
                "put a copy in its place, or remove it"
            )
        if entry.name.endswith("-journal") and _names_another_file(entry.path):
            raise RunDirectoryError(
                f"{entry.path} names another file, which SQLite would delete; evorun writes no such file: remove it"
            )


def reject_symlinks(folder: Path) -> None:
    """Raise RunDirectoryError for anything that would lead a reader out of a run's folder or block it forever."""
    for _ in _regular_files(folder, "read"):
        pass


def _regular_files(folder: Path, use: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder. Raises RunDirectoryError for anything else. use: what is done through names."""
    pending = [os.fspath(folder)]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry
                    else:
                        kind = "a symbolic link" if entry.is_symlink() else "no regular file"
                        raise RunDirectoryError(
                            f"{entry.path} is {kind}, which is not {use} through: put a file or folder in its place, "
                            "or remove it"
                        )
    except OSError as error:
        raise RunDirectoryError(f"cannot read the run directory {folder}: {error.strerror}") from error


def _names_another_file(journal: str) -> bool:
    with open(journal, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - len(_SUPER_JOURNAL), 0))
        return file.read() == _SUPER_JOURNAL

"""The archive of a run: structs that nobody needs for now, in a file without a name that ends with the process.

A resumed run makes them again from its journal, so they need neither outlive the process nor reach the disk.
"""

import os
import tempfile
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.errors import RunDirectoryError

T = TypeVar("T", bound=msgspec.Struct)

_LENGTH_BYTES = 4


class Archive:
    """Takes structs in and gives them back by their place. It belongs to one event loop."""

    def __init__(self, folder: Path | None = None) -> None:
        """Make the file with the first struct, in `folder`, or where temporary files are."""
        self._folder = folder
        self._end = 0

    @cached_property
    def _file(self) -> FileIO:
        # unbuffered: a place may be read at once, and its bytes are in one piece
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def put(self, item: msgspec.Struct) -> int:
        """Take a struct in and return its place. Raises RunDirectoryError when the disk is full."""
        body = msgspec.msgpack.encode(item)
        place, self._end = self._end, self._end + _LENGTH_BYTES + len(body)
        remaining = memoryview(len(body).to_bytes(_LENGTH_BYTES) + body)
        try:
            while remaining:  # a write to a disk that is nearly full may be short
                remaining = remaining[os.pwrite(self._file.fileno(), remaining, self._end - len(remaining)) :]
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise RunDirectoryError(
                f"cannot keep candidates that have left the pool in a file of {folder}: {error.strerror}"
            ) from error
        return place

    def get(self, place: int, kind: type[T]) -> T:
        """Return the struct of a place, equal to the one that was put there; `kind` is its type."""
        descriptor = self._file.fileno()
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, place))
        return msgspec.msgpack.decode(os.pread(descriptor, length, place + _LENGTH_BYTES), type=kind)

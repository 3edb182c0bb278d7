"""The archive of a run: structs moved out of memory into an anonymous file that ends with the process.

A resumed run rebuilds them from its journal, so they need neither outlive the process nor be flushed to the disk.
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
    """A store of structs, each read back by its offset. It belongs to one event loop."""

    def __init__(self, folder: Path | None = None) -> None:
        """Set the folder of the file, by default that of temporary files; the first struct creates it."""
        self._folder = folder
        self._end = 0

    @cached_property
    def _file(self) -> FileIO:
        # unbuffered: a struct may be read right after it was put
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def put(self, item: msgspec.Struct) -> int:
        """Store a struct and return its offset. Raises RunDirectoryError when the disk is full."""
        body = msgspec.msgpack.encode(item)
        offset, self._end = self._end, self._end + _LENGTH_BYTES + len(body)
        remaining = memoryview(len(body).to_bytes(_LENGTH_BYTES) + body)
        try:
            while remaining:  # a write to a disk that is nearly full may be short
                remaining = remaining[os.pwrite(self._file.fileno(), remaining, self._end - len(remaining)) :]
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise RunDirectoryError(
                f"cannot keep candidates that have left the pool in a file of {folder}: {error.strerror}"
            ) from error
        return offset

    def get(self, offset: int, kind: type[T]) -> T:
        """Return the struct stored at an offset; `kind` is its type."""
        descriptor = self._file.fileno()
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, offset))
        return msgspec.msgpack.decode(os.pread(descriptor, length, offset + _LENGTH_BYTES), type=kind)

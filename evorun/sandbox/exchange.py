"""Two ways to exchange a program's texts and outputs with a zygote: shared files, or a stream."""

import asyncio
import contextlib
import fcntl
import os
import socket
from typing import Any, Protocol

import msgspec

from evorun.errors import SandboxError


class Exchange(Protocol):
    """A way to exchange texts and outputs; a zygote uses it for one program at a time."""

    def begin(self) -> None:
        """Send what later requests refer to. Called once, when the zygote is ready. Raises OSError."""

    def ask(self, request: bytes, texts: bytes, typed: bytes) -> None:
        """Send a request with the program's texts and its standard input. Raises OSError, SandboxError."""

    async def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the answer with the program's outputs. Raises OSError, or EOFError when the zygote has ended."""


class SharedFiles:
    """Exchange through files in memory that both sides hold open: outputs never enter the supervisor's memory."""

    def __init__(self, channel: socket.socket, reader: asyncio.StreamReader, files: contextlib.ExitStack) -> None:
        self._channel, self._reader = channel, reader
        self._texts, *self._outputs = self._files = [_unnamed_file(files) for _ in range(4)]

    def begin(self) -> None:
        """See `Exchange`."""
        socket.send_fds(self._channel, [b"\n"], self._files)

    def ask(self, request: bytes, texts: bytes, typed: bytes) -> None:
        """See `Exchange`."""
        with contextlib.ExitStack() as own:
            try:
                _replace(self._texts, texts)
                stdin = _unnamed_file(own)
                _replace(stdin, typed)
                # Sealed, so that nobody can grow it: its pages count as no program's memory.
                fcntl.fcntl(stdin, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW)
            except OSError as error:
                raise SandboxError(f"cannot hand a program its input: {error}") from None
            socket.send_fds(self._channel, [request], [stdin])

    async def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """See `Exchange`."""
        answer = await read_answer(self._reader)
        written = [os.pread(file, length, 0) for file, length in zip(self._outputs, answer["lengths"], strict=True)]
        for file in self._outputs:
            os.ftruncate(file, 0)
        return answer, written


class Stream:
    """Exchange through the control channel itself, for two kernels that cannot share open files (`inside.relay`)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def begin(self) -> None:
        """See `Exchange`."""

    def ask(self, request: bytes, texts: bytes, typed: bytes) -> None:
        """See `Exchange`."""
        sizes = b"%d %d %d\n" % (len(request), len(texts), len(typed))
        self._writer.write(sizes + request + texts + typed)

    async def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """See `Exchange`."""
        answer = await read_answer(self._reader)
        return answer, [await self._reader.readexactly(length) for length in answer["lengths"]]


async def read_answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read a line of JSON. Raises EOFError when there is none."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the zygote ended")
    answer: dict[str, Any] = msgspec.json.decode(line)
    return answer


def _unnamed_file(files: contextlib.ExitStack) -> int:
    """Return the descriptor of an empty file in memory, closed with `files`."""
    descriptor = os.memfd_create("evorun-sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    files.callback(os.close, descriptor)
    return descriptor


def _replace(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)

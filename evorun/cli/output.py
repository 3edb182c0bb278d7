"""Standard output and error that may be closed, full or poor in characters without stopping what is at work."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import IO, Any, cast


class SturdyStream:
    """A text stream that notes the first error of writing and drops everything after it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """Why writing stopped; None while it works."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop the text after an error."""
        with self._noting():
            if self.error is None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless writing has stopped."""
        with self._noting():
            if self.error is None:
                self._stream.flush()

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            # the interpreter flushes what is buffered once more at its end: let that go nowhere
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def sturdy_streams() -> Iterator[SturdyStream]:
    """Make standard output and error sturdy while the block runs; yields the former."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # a stream that the caller closed is None: opening the null device also keeps its number from the files of a run
    out, err = (SturdyStream(stream or open(os.devnull, "w")) for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    with contextlib.redirect_stdout(cast(IO[str], out)), contextlib.redirect_stderr(cast(IO[str], err)):
        yield out


def say(kind: str, message: str, style: str) -> None:
    """Print one line on standard error, `KIND: MESSAGE`; what would steer the terminal becomes visible."""
    from rich.console import Console
    from rich.text import Text

    from evorun.runs.printable import printable

    line = Text.assemble((f"{kind}:", style), " ", printable(" ".join(message.split())))
    Console(stderr=True).print(line, soft_wrap=True)


def complain(message: str) -> None:
    """Print one line of error on standard error."""
    say("error", message, "bold red")


class _Warnings(logging.Handler):
    """Says warnings as they are logged; errors have an end of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning."""
        if record.levelno == logging.WARNING:
            say("warning", record.getMessage(), "bold yellow")


_WARNINGS = _Warnings(logging.WARNING)


def show_warnings() -> None:
    """Print what evorun warns of on standard error from now on; idempotent."""
    logging.getLogger("evorun").addHandler(_WARNINGS)


def unwritten(output: SturdyStream) -> str | None:
    """Return what kept standard output from being written in one line; None when nothing did or its reader left."""
    output.flush()
    if output.error is None or isinstance(output.error, BrokenPipeError):
        return None
    return f"cannot write to standard output: {output.error.strerror}"

"""Standard output and error: a closed, full or ASCII-only terminal must not stop a run of hours."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.progress import Progress


class SturdyStream:
    """A text stream that keeps its first write error and drops all later text."""

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
            # The interpreter flushes the buffer again at exit, which would fail again: send it to the null device.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def sturdy_streams() -> Iterator[SturdyStream]:
    """Make standard output and error sturdy while the block runs; yield standard output."""
    # Replaced characters beat a UnicodeEncodeError in a locale that lacks them.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # A stream that the caller closed is None. Opening the null device also occupies its descriptor. Otherwise a run's
    # first file would get it, and with it whatever a library prints.
    out, err = (SturdyStream(stream or open(os.devnull, "w")) for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    with contextlib.redirect_stdout(cast(IO[str], out)), contextlib.redirect_stderr(cast(IO[str], err)):
        yield out


JSON = "--json"
"""The option by which a verb prints one JSON document, and nothing else, on standard output."""


def print_json(document: Any) -> None:
    """Print a document as indented JSON."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2).decode("utf-8", "replace"))


def say(kind: str, message: str, style: str) -> None:
    """Print one line on standard error, `KIND: MESSAGE`."""
    message = " ".join(message.split())
    try:
        from rich.text import Text

        from evorun.runs.terminal import Terminal
    except ImportError:  # the line may be on just that
        print(f"{kind}: {message}", file=sys.stderr)
        return

    line = Text.assemble((f"{kind}:", style), " ", message)
    console = Terminal(stderr=True)
    # an error often has a command or a path to copy, and in a file each message is one line
    console.print(line, soft_wrap=kind != "warning" or not console.is_terminal)


def showing_progress() -> "Progress":
    """Return a display of what is done and how far it is, on a terminal only; it vanishes at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from evorun.runs.terminal import Terminal

    console = Terminal(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def say_without_terminal(message: str) -> None:
    """Print one line on standard error where it is no terminal, so that `showing_progress` shows nothing."""
    from evorun.runs.terminal import Terminal

    console = Terminal(stderr=True)
    if not console.is_terminal:
        console.print(message, soft_wrap=True)


on_error: Callable[[str, BaseException | None], None] | None = None
"""Takes errors in place of standard error, in a process that another one displays."""


def print_error(message: str, cause: BaseException | None = None, *, said: bool = False) -> None:
    """Print one line of error on standard error, or hand it to the Python program that listens.

    cause: the exception that ended a run or the program, if any. said: the line was printed before, and is not again.
    """
    if on_error is not None:
        on_error(message, cause)
    elif not said:
        say("error", message, "bold red")


class _Warnings(logging.Handler):
    """Prints warnings as they are logged; errors end the command, which prints them."""

    def emit(self, record: logging.LogRecord) -> None:
        from evorun.cli import invocation

        if record.levelno != logging.WARNING:
            return
        message, sweep = record.getMessage(), invocation.current.sweep
        name = None if sweep is None else sweep.job_name
        if sweep is not None and invocation.current.is_said(message, name):  # jobs often warn alike
            return
        say("warning", message if name is None else f"{name}: {message}", "bold yellow")


_WARNINGS = _Warnings(logging.WARNING)


def show_warnings() -> None:
    """Print evorun's warnings on standard error from now on; idempotent."""
    logging.getLogger("evorun").addHandler(_WARNINGS)


def stdout_error(output: SturdyStream) -> str | None:
    """Return one line on why writing to standard output failed, or None."""
    output.flush()
    if output.error is None or isinstance(output.error, BrokenPipeError):  # `evorun list | head` is no error
        return None
    return f"cannot write to standard output: {output.error.strerror}"

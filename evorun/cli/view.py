"""`evorun view`: one local page over many runs."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.runs.formats import counted
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal

_PORT = "--port"
_NO_BROWSER = "--no-browser"


def view_runs(arguments: Sequence[str], console: Terminal) -> None:
    """Serve a page over the runs in the given folders until Ctrl-C. Raises ConfigError for a wrong command line."""
    from evorun.viewer.server import serve

    folders, port, opens_browser = _read(arguments)
    with contextlib.ExitStack() as stack:

        def announce(url: str, runs: int) -> None:
            found = f"{counted(runs, 'run')} below {', '.join(map(display, folders))}"
            console.print(f"{found}; Ctrl-C ends this view, not the runs", soft_wrap=True)
            console.print(url, soft_wrap=True)
            if opens_browser and _has_display():
                webbrowser.open(stack.enter_context(_redirection(url)))

        stack.enter_context(_warn_once())
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(folders, port, announce))


def _read(arguments: Sequence[str]) -> tuple[list[Path], int, bool]:
    """Return the folders, the port (0 for any), and whether a browser may be opened."""
    folders: list[Path] = []
    port = "0"
    rest = iter(arguments)
    for word in rest:
        option, equals, value = word.partition("=")
        if option == _PORT:
            port = value if equals else next(rest, "")
        elif word.startswith("-") and word != _NO_BROWSER:
            raise ConfigError(f"expected: {USAGES['view'].synopsis}; got: {' '.join(arguments)}")
        elif word != _NO_BROWSER:
            folders.append(Path(word))
    if not (port.isascii() and port.isdecimal() and int(port[:6]) < 1 << 16):
        raise ConfigError(f"{_PORT}: expected a number up to 65535, got {port or 'nothing'}")
    return folders or [Path("outputs")], int(port), _NO_BROWSER not in arguments


def _has_display() -> bool:
    screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and screen


@contextlib.contextmanager
def _redirection(url: str) -> Iterator[str]:
    """Yield the address of a file that leads to the page, while the block runs.

    A browser gets its address on its command line, which all users of the machine can read; the file only this one.
    """
    page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={escape(url)}"><title>evorun view</title>'
    with tempfile.NamedTemporaryFile("w", prefix="evorun-view-", suffix=".html") as file:
        file.write(page)
        file.flush()
        yield Path(file.name).as_uri()


@contextlib.contextmanager
def _warn_once() -> Iterator[None]:
    """Print each warning once while the block runs, since the folders are looked at again and again."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in said
        said.add(message)
        return new

    logger = logging.getLogger("evorun.runs.job_search")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)

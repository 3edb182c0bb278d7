"""The progress of a run in another process: a display in a notebook or on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.live import Live

from evorun.api.html import make_html_table
from evorun.runs.progress import PLAIN_INTERVAL_S, Follower, describe_progress, render_progress
from evorun.runs.terminal import Terminal


@contextmanager
def open_display(*, quiet: bool) -> Iterator[Follower]:
    """Yield a function that shows the progress of a run."""
    console = Terminal()
    if quiet:
        yield lambda shown: None
    elif console.is_jupyter:
        yield _show_in_notebook()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda shown: live.update(render_progress(shown), refresh=True)
    else:
        yield _print_lines(console)


def _show_in_notebook() -> Follower:
    """Return a function that shows progress in one place of a cell's output.

    rich would need ipywidgets for this; IPython is there in any notebook.
    """
    # the module is there where rich has found a notebook
    from importlib import import_module

    ipython: Any = import_module("IPython.display")
    handle: Any = None

    def show(shown: Mapping[str, str]) -> None:
        nonlocal handle
        table = ipython.HTML(make_html_table((), shown.items()))
        if handle is None:
            handle = ipython.display(table, display_id=True)
        else:
            handle.update(table)

    return show


def _print_lines(console: Terminal) -> Follower:
    next_line_s = 0.0

    def show(shown: Mapping[str, str]) -> None:
        nonlocal next_line_s
        if time.monotonic() >= next_line_s:
            next_line_s = time.monotonic() + PLAIN_INTERVAL_S
            console.print(describe_progress(shown), soft_wrap=True)

    return show


def print_warning(line: str) -> None:
    """Print a line on standard error, safe for a terminal."""
    Terminal(file=sys.stderr).print(line, soft_wrap=True)

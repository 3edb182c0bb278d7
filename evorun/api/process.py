"""Runs in a process of their own, so that whoever starts one keeps loop, signals, logging and Hydra as they were.

A run sets signal handlers and the garbage collector, registers choices with Hydra and loads weights. In a process of
its own it also works beside a running event loop, in any thread, and leaves no memory of a GPU in use.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorun.api.display import open_display, print_warning
from evorun.cli.usage import EXIT_INTERRUPTED
from evorun.errors import EvorunError, make_error

_READ_S = 5.0
"""Seconds to wait for what an ended process has written: processes that it left may hold its streams open."""


class Done(NamedTuple):
    """The work of a process."""

    folders: list[Path]
    """Of the runs that began in it, in order."""
    sweep: Path | None
    """The sweep's folder; None for a single run."""
    jobs: list[Path]
    """Folders of the sweep's jobs that were asked for, in order, whether they had begun before or not."""
    failures: list[EvorunError]
    """The errors that ended runs, or kept them from beginning."""


def carry_out(arguments: Sequence[str], *, quiet: bool) -> Done:
    """Run the command line in a process of its own and show its progress and warnings.

    quiet: show neither. Raises KeyboardInterrupt, once the run has ended in order, when interrupted; EvorunError when
    the process ended without saying why.
    """
    read, write = os.pipe()
    # as this interpreter finds modules: a notebook's folder, what a script has added
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "evorun.api.child", str(write), json.dumps(list(arguments))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        env=environment,
        start_new_session=True,  # a terminal's Ctrl-C would reach it beside ours, and a second one ends a run at once
    )
    os.close(write)
    events, waiter = _read(process, read)
    found = _Collected()
    try:
        with open_display(quiet=quiet) as show:
            while True:
                try:
                    if (item := events.get()) is None:
                        break
                    event, value = item
                    if event == "progress":
                        show(value)
                    elif event in ("warning", "line"):
                        found.lines.append(value)
                        if not quiet:
                            print_warning(value if event == "line" else f"warning: {value}")
                    else:
                        found.keep(event, value)
                except KeyboardInterrupt:
                    process.send_signal(signal.SIGINT)
    finally:
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe, whose end stops a run that still goes on
        waiter.join()
    return found.conclude(process.returncode)


class _Collected:
    """The events of a process."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._folders: list[Path] = []
        self._sweeps: list[Path] = []
        self._jobs: list[Path] = []
        self._failures: list[EvorunError] = []

    def keep(self, event: str, value: Any) -> None:
        """Keep an error, or folders."""
        if event == "error":
            self._failures.append(make_error(**value))
        elif event == "folders":
            self._folders = [Path(folder) for folder in value]
        elif event == "sweep":
            self._sweeps = [Path(folder) for folder in value]
        elif event == "jobs":
            self._jobs = [Path(folder) for folder in value]

    def conclude(self, code: int) -> Done:
        """Return what was done. Raises KeyboardInterrupt or EvorunError."""
        if code == EXIT_INTERRUPTED:
            begun = [*self._sweeps, *self._folders]
            how = f"; continue with evorun.resume({str(begun[0])!r})" if begun and begun[0].exists() else ""
            raise KeyboardInterrupt(f"the run was interrupted{how}")
        if code != 0 and not self._failures:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            last = f": {self.lines[-1]}" if self.lines else ""
            raise EvorunError(f"the process of the run {how}{last}; its records are kept, continue by its folder")
        return Done(self._folders, self._sweeps[-1] if self._sweeps else None, self._jobs, self._failures)


_Event = tuple[str, Any] | None


def _read(process: "subprocess.Popen[bytes]", descriptor: int) -> tuple["queue.Queue[_Event]", threading.Thread]:
    """Return a process's events and lines of standard error as they come, and the thread that waits for its end.

    None comes last.
    """
    events: queue.Queue[_Event] = queue.Queue()

    def read_events() -> None:
        with os.fdopen(descriptor, "rb") as lines:
            for line in lines:
                events.put(next(iter(json.loads(line).items())))

    def read_lines() -> None:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        with process.stderr as lines:
            for line in lines:
                events.put(("line", line.decode(errors="replace").rstrip("\n")))

    readers = [threading.Thread(target=read, daemon=True) for read in (read_events, read_lines)]

    def wait() -> None:
        process.wait()
        for reader in readers:
            reader.join(_READ_S)
        events.put(None)

    waiter = threading.Thread(target=wait, daemon=True)
    for thread in (*readers, waiter):
        thread.start()
    return events, waiter

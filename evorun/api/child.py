"""The process of a run that Python has started: the command line, which reports to the process that started it.

    python -m evorun.api.child DESCRIPTOR ARGUMENTS

ARGUMENTS are those of the command line, as a JSON list. Events go to the descriptor as JSON lines: `progress` (the
texts to show, by label), `error` (`kind`, its class in evorun.errors, and `message`), `warning`, and at the end the
`folders` of the runs, and of a sweep its own (`sweep`) and those of its `jobs`. When standard input ends, so has the
process that started this one, and the run is stopped.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from evorun.cli import invocation, main, output
from evorun.errors import find_kind
from evorun.runs.progress import follow_progress


class Events:
    """Writes events, from any thread."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._lock = threading.Lock()

    def send(self, event: str, value: Any) -> None:
        """Write an event; nothing where nobody reads any more."""
        with self._lock:
            try:
                self._file.write(json.dumps({event: value}).encode() + b"\n")
            except OSError:
                return

    def send_progress(self, shown: Mapping[str, str]) -> None:
        """Write the progress of a run."""
        self.send("progress", dict(shown))

    def send_error(self, message: str, cause: BaseException | None) -> None:
        """Write an error with its class, or without a cause a warning: what it warns of has not happened yet."""
        if cause is None:
            self.send("warning", message)
        else:
            self.send("error", {"kind": find_kind(cause), "message": message})


def _stop_with_parent() -> None:
    # not through sys.stdin, whose lock a thread must not hold when the interpreter ends
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def carry_out(descriptor: int, arguments: list[str]) -> None:
    """Run the command line and exit with its code."""
    events = Events(descriptor)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    output.on_error = events.send_error
    follow_progress(events.send_progress)
    try:
        main(arguments)
    finally:
        this = invocation.current
        events.send("folders", [os.path.abspath(folder) for folder in this.folders])
        if this.sweep is not None:
            folder = os.path.abspath(this.sweep.folder)
            events.send("sweep", [folder])
            events.send("jobs", [os.path.join(folder, job.folder) for job in this.sweep.jobs])


if __name__ == "__main__":
    carry_out(int(sys.argv[1]), json.loads(sys.argv[2]))

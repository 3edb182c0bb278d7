"""The process beside a run that feeds its trackers from the run's records.

    python -m evorun.tracking.follower RUN_DIR

A process of its own, so that a package that hangs, blocks the interpreter or changes signal handlers reaches no run.
The settings come as one line on standard input, whose end says that the run's process has ended, however it did. What
the trackers' packages print goes to trackers/output.log. Each line on standard output is a warning for the user.
"""

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import EvorunError, first_line
from evorun.runs.directory import load_manifest
from evorun.runs.files import open_lock
from evorun.runs.manifest import Manifest, Status
from evorun.runs.reading import read_results
from evorun.tracking.base import TrackedRun, Tracker
from evorun.tracking.choices import tracker_class
from evorun.tracking.points import FOLDER, Outbox

POLL_S = 2.0
"""Minimum seconds between two looks at the records (ours)."""
_PAUSE_FACTOR = 20
"""Minimum pause as a multiple of the last look's duration (ours): reading takes a twentieth of a core at most."""
_MAX_RETRY_S = 60.0


def main() -> None:
    """Follow the run until its process ends, then give each tracker its time."""
    folder = Path(sys.argv[1])
    trackers = msgspec.json.decode(sys.stdin.readline(), type=dict[str, dict[str, Any]])
    warnings = _redirect_output(folder / FOLDER)

    def warn(message: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the run's process may be gone
            warnings.write(" ".join(message.split()) + "\n")
            warnings.flush()

    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    # the follower of a killed process may still be sending
    lock = open_lock(folder / FOLDER / ".lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        _follow(folder, trackers, ended, warn)
    except EvorunError as error:
        warn(f"trackers get no more points: {error}")
    finally:
        os._exit(0)  # a package's thread or exit handler may hang


def _redirect_output(folder: Path) -> Any:
    """Send what packages print to a file and return the stream of warnings."""
    folder.mkdir(exist_ok=True)
    warnings = os.fdopen(os.dup(1), "w")
    output = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    for stream in (1, 2):
        os.dup2(output, stream)
    return warnings


def _wait_for_end(ended: threading.Event) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    ended.set()


def _follow(
    folder: Path, trackers: Mapping[str, Mapping[str, Any]], ended: threading.Event, warn: Callable[[str], None]
) -> None:
    outbox = Outbox(folder)
    senders = [_Sender(name, dict(values), folder, outbox, ended, warn) for name, values in trackers.items()]
    for sender in senders:
        sender.start()
    pause = 0.0
    while not ended.wait(pause):
        started = time.monotonic()
        outbox.collect()
        pause = max(POLL_S, _PAUSE_FACTOR * (time.monotonic() - started))
    outbox.collect()
    for sender in senders:
        sender.finish()
    deadline = time.monotonic() + max(sender.wait_s for sender in senders)
    for sender in senders:
        sender.join(max(0.0, min(deadline - time.monotonic(), sender.wait_s)))
        if sender.is_alive():
            warn(
                f"tracker={sender.name}: expected all points within {sender.wait_s:g} s of the run's end, some are not "
                f"sent{sender.reason}; evorun resume {folder} sends them"
            )


class _Sender(threading.Thread):
    """Feeds one tracker, and tries again after an error; warns once."""

    def __init__(
        self,
        name: str,
        values: dict[str, Any],
        folder: Path,
        outbox: Outbox,
        ended: threading.Event,
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._kind = tracker_class(name)
        self._config = self._kind.Config(**values)
        self.wait_s = self._config.wait_s
        self.reason = ""
        self._folder = folder
        self._outbox = outbox
        self._ended = ended
        self._complete = threading.Event()
        self._warn = warn

    def finish(self) -> None:
        """Let the thread end once it has sent all rows: no more will come."""
        self._complete.set()
        with self._outbox.changed:
            self._outbox.changed.notify_all()

    def run(self) -> None:
        retry_s = 1.0
        while True:
            try:
                self._send_all()
                return
            except Exception as error:
                if not self.reason:
                    self._warn(f"tracker={self.name}: {first_line(error)}; the run goes on, the tracker is tried again")
                self.reason = f" ({first_line(error)})"
            self._complete.wait(retry_s)
            retry_s = min(2 * retry_s, _MAX_RETRY_S)

    def _send_all(self) -> None:
        outbox, earlier = self._outbox, self._outbox.sent(self.name)
        if not self._wait_for_rows(earlier.rows):
            status = load_manifest(self._folder).status
            if not outbox.rows(0) or earlier.closed == status:
                return
        tracker: Tracker = self._kind(self._config)
        manifest = load_manifest(self._folder)
        sent = tracker.open(_describe(manifest, self._folder, outbox.run_id), earlier.rows)
        while self._wait_for_rows(sent):
            rows = outbox.rows(sent)
            for row in rows:
                tracker.log(row)
            tracker.flush()
            # after sending: a kill before this line repeats rows, which `log` and `open` must tell apart
            sent += len(rows)
            outbox.note(self.name, sent)
        status = load_manifest(self._folder).status
        tracker.close(status, _summary(self._folder, status))
        outbox.note(self.name, sent, closed=status)

    def _wait_for_rows(self, start: int) -> bool:
        """Wait for rows from a number on; return False when no more will come."""
        with self._outbox.changed:
            self._outbox.changed.wait_for(lambda: self._outbox.rows(start) or self._complete.is_set())
            return bool(self._outbox.rows(start))


def _describe(manifest: Manifest, folder: Path, run: str) -> TrackedRun:
    about = msgspec.to_builtins(manifest)
    kept = ("method", "task", "seed", "regime", "simulated", "evorun_version", "git_commit", "config_digest", "models")
    config = {**{key: value for key, value in manifest.config.items() if key != "tracker"}, "run_facts": {}}
    config["run_facts"] = {key: about[key] for key in kept}
    name = f"{manifest.method}_{manifest.task}_seed{manifest.seed}"
    tags = [manifest.method, manifest.task, *(["simulated"] if manifest.simulated else [])]
    return TrackedRun(run, name, folder.resolve() / FOLDER, config, tags)


def _summary(folder: Path, status: Status) -> dict[str, float]:
    """Return the figures of results.json, with the ends of their intervals and the costs."""
    results = read_results(folder) if status == "completed" else None
    if results is None:
        return {}
    figures: dict[str, float] = {}
    for name, metric in results.metrics.items():
        if metric.value is not None:
            figures[name] = metric.value
        if metric.ci95 is not None:
            figures[f"{name}/low"], figures[f"{name}/high"] = metric.ci95
    for role, cost in results.cost.items():
        figures |= {f"cost/{role}/calls": cost.calls, f"cost/{role}/tokens": cost.tokens}
        figures |= {f"cost/{role}/tool_calls": cost.tool_calls} if cost.tool_calls else {}
    return figures


if __name__ == "__main__":
    main()

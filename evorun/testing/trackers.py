"""Conformance of trackers: each point once, whatever was killed between sending it and noting it."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from evorun.runs.manifest import Status
from evorun.testing.expectations import expect, expect_equal
from evorun.tracking.base import Row, Source, TrackedRun, Tracker

Points = Mapping[str, Sequence[tuple[int, float]]]
"""(step, value) by series, in the order of the steps."""

RUN_ID = "0123456789abcdef"
SUMMARY = {"accuracy": 0.75, "accuracy/low": 0.5}

STEPS = 6


def sample_rows() -> list[Row]:
    """Return rows as a run that trains gives them: two sources, interleaved, with series that begin late."""
    rows: list[Row] = []
    for step in range(STEPS):
        means = {"accuracy": step / 8, "accuracy/HIGH": 1 - step / 8, "calls_per_problem": 10.0 * step}
        sources: list[tuple[Source, dict[str, float]]] = [("training", {"training/loss": 1 / (step + 1)})]
        if step % 2 == 0:
            sources.append(("steps", means | ({"late": 1.0} if step else {})))
        for source, values in sources:
            rows.append(Row(len(rows), source, step, 1_700_000_000_000 + 1000 * len(rows), values))
    return rows


def check_tracker(make: Callable[[], Tracker], read: Callable[[TrackedRun], Points], folder: Path) -> None:
    """Check a tracker with what it really writes. Raises AssertionError for the first rule that it breaks.

    make: returns a new tracker with the same settings. read: returns what the tracker's own reader finds of the run.
    folder: empty; the tracker may keep files there. Each part runs in a fork, of which two are killed. `read` is called
    in one, too.
    """
    run = TrackedRun(RUN_ID, "sample_run", folder, {"method": {"name": "sample"}, "seed": 0}, ["sample"])
    rows = sample_rows()
    # (rows noted before, rows to send up to, the end: None is a kill)
    lives: list[tuple[int, int, Status | None]] = [
        (0, 3, None),
        (2, 6, None),  # the third row was sent, but not noted
        (6, len(rows), "interrupted"),
        (len(rows) - 1, len(rows), "completed"),
    ]
    for sent, until, status in lives:
        _in_fork(partial(_live, make, run, rows, sent, until, status), status)
    expected: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.values.items():
            expected.setdefault(name, []).append((row.step, value))
    _in_fork(lambda: _check_points(read(run), expected), "completed")


def _live(
    make: Callable[[], Tracker], run: TrackedRun, rows: Sequence[Row], sent: int, until: int, status: Status | None
) -> None:
    """Live as the process beside a run does, to its end or to a kill."""
    tracker = make()
    start = tracker.open(run, sent)
    expect(0 <= start <= until, f"open: expected the number of a row to go on with, found {start} after {sent} rows")
    for row in rows[start:until]:
        tracker.log(row)
    tracker.flush()
    if status is None:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        tracker.close(status, SUMMARY if status == "completed" else {})


def _check_points(found: Points, expected: Points) -> None:
    for name, points in expected.items():
        steps = [step for step, _ in found.get(name, ())]
        expect_equal(steps, [step for step, _ in points], f"steps of {name} after two kills and two resumes")
        for (step, value), (_, read) in zip(points, found[name], strict=True):
            # a tracker may keep numbers of 32 bits
            expect(abs(read - value) <= 1e-6 * max(1, abs(value)), f"{name} at step {step}: {value} became {read}")


def _in_fork(work: Callable[[], None], status: Status | None) -> None:
    """Do something in a fork. Raises AssertionError with its error, or when it ends otherwise than it should."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def guarded() -> None:
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)  # OpenMP would wait for the parent's threads, which no fork has
        try:
            work()
        except BaseException as error:
            send.send(f"{type(error).__name__}: {error}")
            raise

    process = context.Process(target=guarded)
    process.start()
    process.join()
    if receive.poll():
        raise AssertionError(receive.recv())
    expect_equal(process.exitcode, -signal.SIGKILL if status is None else 0, "the exit code of the tracker's process")

"""The rows that trackers get, made of a run's records and kept in its directory, and how many each tracker has.

A figure is sent once it is final: a step's means when every problem has reached the step or ended. They then equal
those of metrics.jsonl, which a run writes at its end.
"""

import contextlib
import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from evorun.errors import DataError
from evorun.runs.directory import PROBLEMS, load_manifest
from evorun.runs.files import open_regular
from evorun.runs.reading import read_json, read_metrics, read_predictions, read_records, read_steps_without_texts
from evorun.runs.reading import read_training as read_training_records
from evorun.runs.records import complete_lines, write_json
from evorun.runs.results import TRAINING_PREFIX, metric_series, training_series
from evorun.runs.schema import MetricPoint, ProblemRecord
from evorun.runs.scores import Score
from evorun.runs.selection import SEARCH_PREFIX
from evorun.tracking.base import Row, Source

FOLDER = "trackers"
POINTS = "points.jsonl"
STATE = "state.json"


class Sent(msgspec.Struct):
    """The progress of one tracker."""

    rows: int = 0
    """The first rows of points.jsonl that it has."""
    closed: str = ""
    """The run's status when the tracker was last closed; empty while it is open."""


class State(msgspec.Struct):
    """trackers/state.json."""

    run: str
    """The run's random id in every tracker."""
    sent: dict[str, Sent]
    """By tracker."""


class Outbox:
    """The rows of a run in the order in which they became final, and what has been sent of them; locks itself."""

    def __init__(self, run: Path) -> None:
        """Read what earlier processes left. Raises DataError or RunDirectoryError."""
        self.folder = run / FOLDER
        self._run = run
        self.folder.mkdir(exist_ok=True)
        self.changed = threading.Condition()
        """Notified when there are new rows."""
        self._rows = _read_rows(self.folder / POINTS)
        self._last: dict[Source, int] = {"steps": -1, "training": -1}
        for row in self._rows:
            self._last[row.source] = row.step
        self._seen: tuple[int, ...] = ()
        self._state = read_json(self.folder / STATE, State) or State(secrets.token_hex(8), {})
        self._save()  # before a tracker hears of the id

    @property
    def run_id(self) -> str:
        """The run's id in every tracker."""
        return self._state.run

    def collect(self) -> None:
        """Append the rows that have become final since the last call. Raises DataError for malformed records."""
        names = ("steps.jsonl", "predictions.jsonl", "training.jsonl", "metrics.jsonl", "manifest.json")
        seen = tuple(_size(self._run / name) for name in names)
        if seen == self._seen:
            return
        points = final_points(self._run, self._last["steps"])
        rows: list[Row] = []
        for source, step, values in _grouped(points):
            if step > self._last[source]:
                number = len(self._rows) + len(rows)
                rows.append(Row(number, source, step, time.time_ns() // 1_000_000, values))
                self._last[source] = step
        with (self.folder / POINTS).open("ab") as file:
            file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        self._seen = seen
        with self.changed:
            self._rows += rows
            self.changed.notify_all()

    def rows(self, start: int) -> Sequence[Row]:
        """Return the rows from a number on."""
        with self.changed:
            return self._rows[start:]

    def sent(self, tracker: str) -> Sent:
        """Return how far a tracker is."""
        return self._state.sent.get(tracker, Sent())

    def note(self, tracker: str, rows: int, closed: str = "") -> None:
        """Record how far a tracker is. Raises RunDirectoryError."""
        with self.changed:
            self._state.sent[tracker] = Sent(rows, closed)
            self._save()

    def _save(self) -> None:
        write_json(self.folder / STATE, self._state)


def final_points(run: Path, after: int) -> list[MetricPoint]:
    """Return the points that no later record of the run can change; of the means, those after a step."""
    manifest = load_manifest(run)
    if manifest.status == "completed":
        # those of the selection are known at the end alone, when earlier steps are sent already
        return [point for point in read_metrics(run) if not point.name.startswith(SEARCH_PREFIX)]
    points = list(training_series(read_training_records(run)))
    return points + _final_means(run, manifest.scores, after)


def _final_means(run: Path, scores: Sequence[Score], after: int) -> list[MetricPoint]:
    steps = read_steps_without_texts(run)
    reached = {record.problem: record.step for record in steps}  # later records overwrite
    ended = {record.problem for record in read_predictions(run)}
    problems = [record.problem for record in read_records(run / PROBLEMS, ProblemRecord)]
    under_way = [reached.get(problem, -1) for problem in problems if problem not in ended]
    last = min(under_way, default=max(reached.values(), default=-1))
    return metric_series(steps, scores, after=after, until=last) if last > after else []


def _grouped(points: Iterable[MetricPoint]) -> list[tuple[Source, int, dict[str, float]]]:
    """Return the values of each source and step by series, in the order of the steps."""
    groups: dict[tuple[Source, int], dict[str, float]] = defaultdict(dict)
    for point in points:
        source: Source = "training" if point.name.startswith(TRAINING_PREFIX) else "steps"
        values = groups[source, point.step]
        if point.value is not None:
            values[point.name] = point.value
        if source == "training":
            # of the run, not per problem
            values |= {f"{TRAINING_PREFIX}calls": point.calls, f"{TRAINING_PREFIX}tokens": point.tokens}
        elif "calls_per_problem" not in values:
            values |= {"calls_per_problem": point.calls, "tokens_per_problem": point.tokens}
    return [(source, step, values) for (source, step), values in sorted(groups.items(), key=lambda item: item[0][1])]


def _read_rows(path: Path) -> list[Row]:
    """Return the complete rows of the file and cut off what a kill left behind them."""
    rows: list[Row] = []
    keep = 0
    with contextlib.suppress(FileNotFoundError):
        for line in complete_lines(path):
            try:
                row = msgspec.json.decode(line, type=Row)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(f"{path}, line {len(rows) + 1}: expected a row of a tracker: {error}") from error
            rows.append(row)
            keep += len(line) + 1
        os.truncate(path, keep)
    return rows


def _size(path: Path) -> int:
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size
    except OSError:
        return -1

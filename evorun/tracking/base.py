"""The contract of a tracker: what the process that follows a run asks of it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Meta

from evorun.fields import Checked
from evorun.runs.manifest import Status

Source = Literal["steps", "training"]


class Row(msgspec.Struct, frozen=True):
    """A line of trackers/points.jsonl: all figures of one step, from one source."""

    row: int
    """Its number, from 0."""
    source: Source
    """`steps`: means over the problems; `training`: the figures of a training step."""
    step: int
    time_ms: int
    """Milliseconds since 1970, when the row was first written."""
    values: dict[str, float]
    """By series; a series never appears twice at a step, and its steps increase."""


@dataclass(frozen=True)
class TrackedRun:
    """The description of a run that a tracker gets."""

    id: str
    """Random, the same on every resume."""
    name: str
    folder: Path
    """`trackers` in the run directory, for a tracker that keeps files there."""
    config: Mapping[str, Any]
    """Settings and provenance as JSON; no keys, since a run's configuration has none."""
    tags: Sequence[str] = ()


@dataclass
class TrackerSettings(Checked):
    """Settings that every tracker has."""

    section = "tracker"

    wait_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """Seconds that the run's end waits at most until the tracker has everything."""


class Tracker(Protocol):
    """One tracker of one run. All methods are called in one thread of a process beside the run.

    Each may raise anything: the run goes on, and the follower tries again with a new object. `Config` is a dataclass
    that derives from `TrackerSettings`; a plug-in's defaults replace the YAML file.
    """

    Config: ClassVar[type[TrackerSettings]]
    packages: ClassVar[Sequence[str]]
    """Modules that must be importable, checked before the run begins."""
    variables: ClassVar[Sequence[str]]
    """Environment variables that it may see, a final `*` for any ending: keys come only from there."""

    def __init__(self, config: Any) -> None:
        """Keep the settings, an instance of `Config`; import and connect nothing."""
        ...

    def open(self, run: TrackedRun, sent: int) -> int:
        """Connect to the tracker's run, which exists after a resume, and return the number of the first row to log.

        sent: the rows that earlier processes are known to have sent. A tracker that can tell what it holds returns
        less where something got lost.
        """
        ...

    def log(self, row: Row) -> None:
        """Send a row. One that an earlier process sent already, in whole or in part, must not double a point."""
        ...

    def flush(self) -> None:
        """Return when the rows logged so far survive the end of this process, as far as the tracker can promise."""
        ...

    def close(self, status: Status, summary: Mapping[str, float]) -> None:
        """Say how the run ended and release everything; a resume opens the same run again.

        summary: the figures of results.json by name, empty unless the run is complete.
        """
        ...


def visible_variables(patterns: Sequence[str]) -> list[str]:
    """Return the names of the environment's variables that fit a tracker's `variables`."""
    return [
        name for name in os.environ if any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
    ]

"""Trackio: a SQLite file on this machine, or a Space on the Hugging Face hub."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evorun.runs.configs import iterate_leaves
from evorun.runs.manifest import Status
from evorun.tracking.base import Row, TrackedRun, TrackerSettings

_POLL_S = 0.05


@dataclass
class TrackioSettings(TrackerSettings):
    """Schema of `conf/tracker/trackio.yaml`."""

    section = "tracker.trackio"

    project: str = "evorun"
    group: str | None = None
    """Runs of one group are shown together."""
    space_id: str | None = None
    """USER/SPACE on the hub; null: local."""


class TrackioTracker:
    """Logs of a Trackio run, named by the run's id, by which it is found again.

    Trackio writes a log in one transaction. A local resume reads back which rows the run has. A Space is not read
    back: a kill between sending and noting may repeat a row there.
    """

    Config = TrackioSettings
    packages = ("trackio",)
    variables = ("TRACKIO_*", "HF_*")

    def __init__(self, config: TrackioSettings) -> None:
        self._config = config
        self._name = ""
        self._run: Any = None
        self._held: set[int] = set()
        self._logged: set[int] = set()

    def open(self, run: TrackedRun, sent: int) -> int:
        """Open the run; the hardware's figures stay out."""
        import trackio

        self._name = f"{run.name}-{run.id}"
        if self._config.space_id is None:
            self._held = self._stored()
        self._run = trackio.init(
            self._config.project,
            name=self._name,
            group=self._config.group,
            space_id=self._config.space_id,
            config=dict(iterate_leaves(dict(run.config))),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return 0 if self._config.space_id is None else sent

    def log(self, row: Row) -> None:
        """Queue a row that is not stored yet; `row` tells it apart when it is read back."""
        if row.row not in self._held:
            self._run.log({**row.values, "row": row.row}, step=row.step)
            self._logged.add(row.row)

    def flush(self) -> None:
        """Wait until the package's thread has stored what was queued; a Space has a queue of its own."""
        while self._config.space_id is None and not self._logged <= self._held:
            time.sleep(_POLL_S)
            self._held = self._stored()

    def _stored(self) -> set[int]:
        from trackio.sqlite_storage import SQLiteStorage

        logs = SQLiteStorage.get_logs(self._config.project, self._name)
        return {int(log["row"]) for log in logs if "row" in log}

    def close(self, status: Status, summary: Mapping[str, float]) -> None:
        """Finish the run; Trackio has no place for a summary."""
        import trackio

        trackio.finish()

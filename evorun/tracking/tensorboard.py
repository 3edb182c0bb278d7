"""TensorBoard: event files, which the package alone writes and reads, without TensorFlow or torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.runs.manifest import Status
from evorun.tracking.base import Row, TrackedRun, TrackerSettings


@dataclass
class TensorBoardSettings(TrackerSettings):
    """Schema of `conf/tracker/tensorboard.yaml`."""

    section = "tracker.tensorboard"

    folder: str | None = None
    """Folder of the event files; null: trackers/tensorboard in the run directory."""


class TensorBoardTracker:
    """Scalars in event files.

    Event files only grow, so a resume reads back the last step of each tag and writes what comes after it.
    """

    Config = TensorBoardSettings
    packages = ("tensorboard",)
    variables = ()

    def __init__(self, config: TensorBoardSettings) -> None:
        self._config = config
        self._held: dict[str, int] = {}
        self._writer: Any = None

    def open(self, run: TrackedRun, sent: int) -> int:
        """Read the folder's event files back and begin another one."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = (
            run.folder / "tensorboard"
            if self._config.folder is None
            else Path(self._config.folder) / f"{run.name}-{run.id}"
        )
        if folder.is_dir():
            self._held = {tag: steps[-1] for tag, steps in read_steps(folder).items()}
        self._writer = EventFileWriter(str(folder))
        return 0  # what is there is known by tag, also where a kill cut a row in two

    def log(self, row: Row) -> None:
        """Write the row's values of which no event file has this step yet."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        fresh = {name: value for name, value in row.values.items() if row.step > self._held.get(name, -1)}
        if fresh:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in fresh.items()]
            self._writer.add_event(
                Event(wall_time=row.time_ms / 1000, step=row.step, summary=Summary(value=values)),
            )

    def flush(self) -> None:
        """Hand all events to the operating system."""
        self._writer.flush()

    def close(self, status: Status, summary: Mapping[str, float]) -> None:
        """Close the file; TensorBoard has no place for an end or a summary."""
        self._writer.close()


def read_steps(folder: Path) -> dict[str, list[int]]:
    """Return the steps of each scalar in a folder's event files, in the order in which they were written."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})  # 0: all of them
    events.Reload()
    tags = events.Tags()
    return {tag: [event.step for event in events.Scalars(tag)] for tag in tags["scalars"]} | {
        tag: [event.step for event in events.Tensors(tag)] for tag in tags["tensors"]
    }

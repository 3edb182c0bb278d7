"""Trackers that write below a test's folder, and the packages' own readers of what they wrote."""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evorun.testing.trackers import Points

PROJECT = "tests"


class Written(NamedTuple):
    """A tracker as it is set up for a test."""

    settings: Callable[[Path], dict[str, Any]]
    """Of `tracker.NAME`, by the test's folder."""
    read: Callable[[Path, str], Points]
    """Returns the points of a run in that folder, by the run's id."""


def read_tensorboard(folder: Path, run: str) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    [events] = folder.glob(f"tensorboard/*{run}")
    accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def read_mlflow(folder: Path, run: str) -> Points:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    [found] = client.search_runs([client.get_experiment_by_name(PROJECT).experiment_id])
    assert found.data.tags["evorun.run"] == run
    names = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: sorted((point.step, point.value) for point in points) for name, points in names.items()}


def read_trackio(folder: Path, run: str) -> Points:
    from trackio.sqlite_storage import SQLiteStorage

    [name] = [name for name in SQLiteStorage.get_runs(PROJECT) if name.endswith(run)]
    points = defaultdict(list)
    for log in SQLiteStorage.get_logs(PROJECT, name):
        for series in log.keys() - {"row", "step", "timestamp"}:
            points[series].append((log["step"], log[series]))
    return {series: sorted(found) for series, found in points.items()}


def read_wandb(folder: Path, run: str) -> Points:
    import json

    from wandb.proto.wandb_internal_pb2 import Record

    from evorun.tracking.wandb import read_log

    points = defaultdict(list)
    for file in sorted(folder.glob(f"wandb/offline-run-*-{run}/*.wandb")):
        for record in map(Record.FromString, read_log(file.read_bytes())):
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for series in values.keys() - {"step"} if "step" in values else ():
                if not series.startswith("_"):
                    points[series].append((values["step"], values[series]))
    return points


TRACKERS = {
    "tensorboard": Written(lambda folder: {"folder": str(folder / "tensorboard")}, read_tensorboard),
    "mlflow": Written(lambda folder: {"uri": f"sqlite:///{folder}/mlflow.db", "experiment": PROJECT}, read_mlflow),
    "trackio": Written(lambda folder: {"project": PROJECT}, read_trackio),
    "wandb": Written(lambda folder: {"mode": "offline", "folder": str(folder), "project": PROJECT}, read_wandb),
}


def environment(folder: Path) -> dict[str, str]:
    """Return the variables under which the packages stay in a test's folder."""
    return {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}

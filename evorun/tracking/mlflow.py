"""MLflow: a server, a database or local files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evorun.errors import ConfigError
from evorun.runs.configs import iterate_leaves
from evorun.runs.manifest import Status
from evorun.tracking.base import Row, TrackedRun, TrackerSettings

_TAG = "evorun.run"
_MAX_PARAM = 500
"""Characters of a parameter's value that any version of MLflow stores."""
_BATCH = 100
"""Parameters in one request, at most, by MLflow's REST API."""

_ENDS = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "running": "KILLED"}


@dataclass
class MlflowSettings(TrackerSettings):
    """Schema of `conf/tracker/mlflow.yaml`."""

    section = "tracker.mlflow"

    experiment: str = "evorun"
    uri: str | None = None
    """Of a server or a database; null: MLFLOW_TRACKING_URI, else MLflow's own default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.uri is not None and "@" in self.uri:
            raise ConfigError(
                "tracker.mlflow.uri: expected a URI without user and password, got one with them (not shown); set "
                "MLFLOW_TRACKING_URI, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )


class MlflowTracker:
    """Metrics of an MLflow run, found again by a tag that it has from its creation.

    MLflow keeps every point that it is sent, so a resume reads back the last step of each metric.
    """

    Config = MlflowSettings
    packages = ("mlflow",)
    variables = ("MLFLOW_*", "DATABRICKS_*", "AWS_*")

    def __init__(self, config: MlflowSettings) -> None:
        self._config = config
        self._client: Any = None
        self._run = ""
        self._held: dict[str, int] = {}

    def open(self, run: TrackedRun, sent: int) -> int:
        """Find or create the run, and read back what it has."""
        from mlflow import MlflowClient

        self._client = client = MlflowClient(tracking_uri=self._config.uri)
        experiment = client.get_experiment_by_name(self._config.experiment)
        number = client.create_experiment(self._config.experiment) if experiment is None else experiment.experiment_id
        found = client.search_runs([number], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            self._held = {
                name: max(point.step for point in client.get_metric_history(self._run, name))
                for name in found[0].data.metrics
            }
            recorded = set(found[0].data.params)
        else:
            tags = {_TAG: run.id, **{f"evorun.{number}": tag for number, tag in enumerate(run.tags)}}
            self._run = client.create_run(number, run_name=run.name, tags=tags).info.run_id
            recorded = set()
        self._log_params({name: value for name, value in _parameters(run.config).items() if name not in recorded})
        return 0

    def _log_params(self, parameters: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        entities = [Param(name, value) for name, value in parameters.items()]
        for start in range(0, len(entities), _BATCH):
            self._client.log_batch(self._run, params=entities[start : start + _BATCH])

    def log(self, row: Row) -> None:
        """Send the values that come after what the run has of their metrics."""
        from mlflow.entities import Metric

        metrics = [
            Metric(_name(name), value, row.time_ms, row.step)
            for name, value in row.values.items()
            if row.step > self._held.get(_name(name), -1)
        ]
        if metrics:
            self._client.log_batch(self._run, metrics=metrics)

    def flush(self) -> None:
        """Do nothing: `log` returns when the store has the values."""

    def close(self, status: Status, summary: Mapping[str, float]) -> None:
        """Set the run's status, and the figures of results.json as tags, which a repetition overwrites."""
        for name, value in summary.items():
            self._client.set_tag(self._run, f"final.{_name(name)}", repr(value))
        self._client.set_terminated(self._run, status=_ENDS[status])


def _name(series: str) -> str:
    """Return a metric's name in MLflow, which allows letters, digits, _ - . : space and /."""
    return "".join(character if character.isalnum() or character in "_-. :/" else "_" for character in series)


def _parameters(config: Mapping[str, Any]) -> dict[str, str]:
    return {_name(key): str(value)[:_MAX_PARAM] for key, value in iterate_leaves(dict(config))}

"""The record of a study file: made before a sweep's first job, and the same in each of its runs."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from evorun.errors import ConfigError
from evorun.runs.paths import display
from evorun.runs.stated_studies import RecordedStudy, record_study
from evorun.runs.sweeps import SweepManifest, is_sweep, read_sweep


def study_of_sweep(files: Collection[str], folder: Path, earlier: SweepManifest | None) -> RecordedStudy | None:
    """Return the study of a sweep whose jobs name these files: as it was first recorded, else recorded now.

    earlier: the manifest of the sweep's earlier start, if any. Raises ConfigError where the file has changed since.
    """
    if not files:
        return None
    if len(files) > 1:
        raise ConfigError(f"study: expected one study file for the sweep, got {', '.join(sorted(files))}")
    path = Path(*files).absolute()
    first = None if earlier is None else earlier.study
    if first is None:
        return record_study(path)
    if path.is_file() and record_study(path).digest != first.digest:
        raise ConfigError(
            f"study={display(path)}: the file has changed since {display(folder)} was started, at {first.recorded}; "
            "undo the change, or start another sweep"
        )
    return first


def recorded_study(file: str) -> dict[str, Any]:
    """Return the study that a run's `study` names, as its sweep recorded it, else as it is now. Raises ConfigError."""
    recorded = None
    if HydraConfig.initialized() and (job := HydraConfig.get()).mode == RunMode.MULTIRUN:
        folder = Path(job.sweep.dir)
        recorded = read_sweep(folder).study if is_sweep(folder) else None
    found: Mapping[str, Any] = msgspec.to_builtins(recorded or record_study(Path(file).absolute()))
    return dict(found)

"""`evorun study FILE`: a sweep that a study file states before it starts."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from evorun.cli.overrides import MAY_CHANGE, read_key
from evorun.cli.quoting import written
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.runs.paths import display
from evorun.runs.schema import Setting
from evorun.runs.stated_studies import RecordedStudy, StatedStudy, record_study
from evorun.runs.sweeps import SweepManifest, is_sweep, read_sweep
from evorun.runs.terminal import Terminal


def start_study(arguments: Sequence[str], console: Terminal) -> int:
    """Start the sweep that a study file states; return the exit code. Raises ConfigError for a wrong command line."""
    from evorun.cli.launch import run_hydra

    words = list(arguments)
    if not words or "=" in words[0] or words[0].startswith("-") or not all("=" in word for word in words[1:]):
        raise ConfigError(f"expected: {USAGES['study'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    file, given = Path(words[0]).absolute(), words[1:]
    for key in map(read_key, given):
        if not key.startswith(("hydra.", "hydra/")) and key.partition(".")[0] not in MAY_CHANGE:
            raise ConfigError(
                f"{key}: expected settings of how runs are executed (hydra.KEY, {'.KEY, '.join(MAY_CHANGE)}.KEY); the "
                "study file states all that decides their results"
            )
    study = record_study(file).study
    console.print(f"{study.question} {describe_plan(study)}", soft_wrap=True)
    return run_hydra([*compose_sweep(study, file), *given])


def describe_plan(study: StatedStudy) -> str:
    """Say how many runs the study has."""
    runs, arms = len(study.arms) * len(study.seeds), len(study.arms)
    return f"{arms} methods x {len(study.seeds)} seeds on {study.task}: {runs} runs."


def compose_sweep(study: StatedStudy, file: Path) -> list[str]:
    """Return the command line of a study's sweep: the control, and each method as a variant of it."""
    control, *methods = study.arms
    variants = ",".join(f"{{{','.join(f'{key}:{_write(value)}' for key, value in arm.items())}}}" for arm in methods)
    return [
        "-m",
        *(f"{key}={_write(value)}" for key, value in {**study.common, **control}.items()),
        f"seed={','.join(map(str, study.seeds))}",
        f"hydra.sweeper.variants=[{variants}]",
        f"study={_write(display(file))}",
    ]


def _write(value: Setting) -> str:
    if isinstance(value, str):
        return written(value)
    return "null" if value is None else str(value).lower()


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

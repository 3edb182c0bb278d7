"""The run directories that a command's arguments stand for: a run, a sweep's folder, or a folder of both."""

import logging
from collections.abc import Sequence
from pathlib import Path

from evorun.errors import RunDirectoryError
from evorun.runs.directory import MANIFEST, load_manifest
from evorun.runs.paths import display
from evorun.runs.sweeps import is_sweep

CAPTIONS = "captions"
"""Table of an export's captions; its file tells a folder of figures, which may lie among runs, from a broken run."""

_log = logging.getLogger(__name__)


def run_folders(arguments: Sequence[Path]) -> list[Path]:
    """Return the run directories in order, each once; a folder stands for the runs and sweeps inside it, by name.

    In such a folder, folders without a manifest and runs with a malformed one are skipped with a warning; folders of
    exported figures, without. A folder without a readable run is kept, so that the reader of its manifest reports the
    error. Hydra's multirun.yaml is ignored, since SWEEP/* names it too. Raises RunDirectoryError for a path that is no
    folder.
    """
    folders: dict[Path, Path] = {}
    for argument in arguments:
        if argument.name == "multirun.yaml" and argument.is_file():
            continue
        if not argument.is_dir():
            raise RunDirectoryError(
                f"expected a run directory, found none at {display(argument)}; a sweep's folder stands for its runs, "
                "and evorun status lists those below outputs"
            )
        for folder in _find_runs(argument):
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def _find_runs(folder: Path) -> list[Path]:
    if (folder / MANIFEST).exists():
        return [folder]
    inside = sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))
    held = {inner: [inner] if (inner / MANIFEST).exists() else _find_jobs(inner) for inner in inside}
    runs = [run for found in held.values() for run in found]
    readable = []
    for run in runs:
        try:
            load_manifest(run)
        except RunDirectoryError as error:
            _log.warning("left out: %s", error)
        else:
            readable.append(run)
    if readable:
        for inner, found in held.items():
            if not found and not (inner / f"{CAPTIONS}.csv").exists():
                _log.warning("%s is left out: it holds no %s", display(inner), MANIFEST)
    # where none is readable, the reader of the manifest reports why, which an empty list would hide
    return readable or runs[:1] or [folder]


def _find_jobs(folder: Path) -> list[Path]:
    """Return the runs of a sweep, by name; none for another folder, whose runs may be parts of something else."""
    if not is_sweep(folder):
        return []
    return sorted(inner for inner in folder.iterdir() if (inner / MANIFEST).exists())

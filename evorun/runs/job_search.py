"""The jobs below folders: of sweeps, by their manifests, and runs and tournaments by themselves."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from evorun.errors import RunDirectoryError
from evorun.runs.directory import MANIFEST, TOURNAMENT
from evorun.runs.job_states import JobStatus, look_at_run
from evorun.runs.paths import display
from evorun.runs.sweeps import SweepManifest, is_sweep, job_statuses, read_sweep

_MAX_DEPTH = 6
"""Levels of folders that are searched (ours): evorun's own folders of runs have three."""
_MAX_FOLDERS = 100_000
"""Folders that are looked into at most (ours): a search of a whole disk ends."""

_log = logging.getLogger(__name__)


class SweepStatus(msgspec.Struct, frozen=True):
    """A sweep as it is now."""

    folder: str
    """The sweep's folder."""
    launcher: str
    """Launcher of its jobs: the choice of `hydra/launcher`."""
    jobs: list[JobStatus]
    """Its jobs, in the order in which they start."""


class Overview(msgspec.Struct, frozen=True):
    """The jobs below some folders."""

    sweeps: list[SweepStatus]
    """Sweeps, by folder."""
    runs: list[JobStatus]
    """Runs that are no sweep's job, and tournaments, by folder."""


def find_jobs(folders: Sequence[Path]) -> Overview:
    """Return the jobs of runs, tournaments, sweeps and folders of them.

    Raises RunDirectoryError for what is no folder.
    """
    sweeps: dict[str, SweepStatus] = {}
    runs: dict[str, JobStatus] = {}
    for folder, sweep in (found for given in folders for found in find_folders(given)):
        shown = display_as_text(folder)
        if sweep is None:
            runs.setdefault(shown, look_at_run(folder, shown))
        else:
            sweeps.setdefault(shown, SweepStatus(shown, sweep.launcher, job_statuses(folder, sweep)))
    return Overview(list(sweeps.values()), list(runs.values()))


def find_folders(given: Path) -> Iterator[tuple[Path, SweepManifest | None]]:
    """Yield the folders of runs and tournaments in a folder, and of sweeps with their manifests; follow no links.

    They come by name. A sweep whose manifest cannot be read is left out with a warning. Raises RunDirectoryError for
    what is no folder.
    """
    if not given.is_dir():
        raise RunDirectoryError(f"expected a folder of runs, found none at {display(given)}")
    left = iter(range(_MAX_FOLDERS))
    yield from _walk(given, _MAX_DEPTH, left)
    if next(left, None) is None:
        _log.warning("%s: looked into %s folders, the others are left out", display(given), f"{_MAX_FOLDERS:,}")


def display_as_text(folder: Path) -> str:
    """Return a folder as `display` does, in characters that JSON can hold: a name need not be text."""
    return display(folder).encode("utf-8", "replace").decode()


def _walk(folder: Path, depth: int, left: Iterator[int]) -> Iterator[tuple[Path, SweepManifest | None]]:
    if next(left, None) is None:
        return
    if (folder / MANIFEST).exists() or (folder / TOURNAMENT).exists():
        yield folder, None
        return
    if is_sweep(folder):
        try:
            sweep = read_sweep(folder)
        except RunDirectoryError as error:
            _log.warning("%s", error)
        else:
            yield folder, sweep
            return
    if depth == 0:
        return
    try:
        with os.scandir(folder) as entries:
            inner = sorted(
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name[:1] != "."
            )
    except OSError:
        return
    for name in inner:
        yield from _walk(folder / name, depth - 1, left)

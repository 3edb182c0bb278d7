"""From folders to runs: a run, a sweep, a folder of many, or a list of these."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from evorun.api.runs import Run, Runs
from evorun.errors import RunDirectoryError
from evorun.runs.directory import MANIFEST, TOURNAMENT
from evorun.runs.folders import run_folders
from evorun.runs.paths import display

Place = str | os.PathLike[str] | Run | Runs
"""A folder, or what was loaded from one."""


@overload
def load(path: Sequence[Place]) -> Runs: ...
@overload
def load(path: Place) -> Run | Runs: ...
def load(path: Place | Sequence[Place]) -> Run | Runs:
    """Return the run in a folder; for a sweep's folder, any folder of runs, or a list of folders, return all runs.

    A running or broken run loads, too. In a folder of runs, those without a readable manifest are left out with a
    warning. Raises RunDirectoryError where there is no run, or no readable one.
    """
    if isinstance(path, Run):
        return path
    if isinstance(path, str | os.PathLike) and (Path(path) / MANIFEST).exists():
        return Run(Path(path))
    places = [path] if isinstance(path, str | os.PathLike | Runs) else list(path)
    found: dict[Path, Path] = {}
    for place in places:
        for folder in _find_folders(place):
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise RunDirectoryError("expected at least one run, got an empty list")
    folders = list(found.values())
    root = Path(os.path.commonpath([folder.absolute().parent for folder in folders]))
    if len(places) == 1 and isinstance(path, str | os.PathLike):
        root = Path(path).absolute()
    return Runs([Run(folder) for folder in folders], root)


def _find_folders(place: Place) -> Iterator[Path]:
    if isinstance(place, Run | Runs):
        yield from (run.path for run in ([place] if isinstance(place, Run) else place))
        return
    folder = Path(place)
    if not folder.is_dir():
        raise RunDirectoryError(f"expected a run directory, found none at {display(folder)}")
    if (folder / MANIFEST).exists():
        yield folder
        return
    holders = list(_find_holders(folder))
    if not holders:
        raise RunDirectoryError(f"{display(folder)}: expected a run, or a folder with runs, found no {MANIFEST} in it")
    for holder in holders:
        yield from run_folders([holder])


def _find_holders(folder: Path) -> Iterator[Path]:
    """Yield the folders that directly hold runs; what lies in a run's or a tournament's folder is a part of it."""
    for current, inside, files in os.walk(folder):
        if MANIFEST in files or TOURNAMENT in files:
            inside.clear()
            continue
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if any((Path(current) / name / MANIFEST).exists() for name in inside):
            yield Path(current)

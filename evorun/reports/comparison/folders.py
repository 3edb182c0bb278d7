"""Which run directories the arguments of a report stand for, and where a comparison of them goes."""

import os
from collections.abc import Sequence
from pathlib import Path

from evorun.errors import RunDirectoryError
from evorun.runs.directory import MANIFEST
from evorun.runs.paths import display


def run_folders(arguments: Sequence[Path]) -> list[Path]:
    """Return the run directories in order, each once; a sweep's folder stands for the runs inside it, by name.

    A folder that holds neither a manifest nor runs is kept, for the reader of manifests to refuse. Raises
    RunDirectoryError for what is no folder.
    """
    folders: dict[Path, Path] = {}
    for argument in arguments:
        if not argument.is_dir():
            raise RunDirectoryError(f"expected a run directory, found none at {display(argument)}")
        for folder in _runs_in(argument):
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def _runs_in(folder: Path) -> list[Path]:
    if (folder / MANIFEST).exists():
        return [folder]
    return sorted(manifest.parent for manifest in folder.glob(f"*/{MANIFEST}")) or [folder]


def comparison_folder(run_dirs: Sequence[Path]) -> Path:
    """Return the deepest folder that holds all the runs; the current one where that cannot be written."""
    common = Path(os.path.commonpath([run_dir.resolve().parent for run_dir in run_dirs]))
    # a file of ours has no place in the root, even where it could be written
    fits = common != Path(common.anchor) and os.access(common, os.W_OK | os.X_OK)
    return common if fits else Path.cwd()

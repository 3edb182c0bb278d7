"""Checks on a command's output paths: never inside a run directory, and no file is overwritten unasked."""

from pathlib import Path

from evorun.errors import ConfigError
from evorun.runs.directory import MANIFEST, TOURNAMENT
from evorun.runs.paths import display


def refuse_folder_of_records(key: str, folder: Path) -> None:
    """Raise ConfigError for a folder in that of a run or tournament: reports and resumes rely on its files.

    key: the option that names the folder or a file in it.
    """
    for outer in (folder.resolve(), *folder.resolve().parents):
        if (outer / MANIFEST).exists() or (outer / TOURNAMENT).exists():
            raise ConfigError(f"{key}: expected a place outside run directories, got {display(folder)}; choose another")


def refuse_replacing(key: str, file: Path, *, overwrite: bool, content: bytes | None = None, how: str = "") -> None:
    """Raise ConfigError for an existing file unless `overwrite` is set.

    content: the bytes to write, where they are known; a file that already holds them is accepted, since an interrupted
    pipeline may repeat the command. how: the option that overwrites, by default overwrite=true.
    """
    if overwrite or not (file.exists() or file.is_symlink()):
        return
    if content is None:
        raise ConfigError(f"{key}: {display(file)} exists; {how or 'overwrite=true'} replaces it")
    if not (file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content):
        raise ConfigError(f"{key}: {display(file)} exists with other content; {how or 'overwrite=true'} replaces it")

"""Files that a command writes where its user says: never among records, and in no other file's place unasked."""

from pathlib import Path

from evorun.errors import ConfigError
from evorun.runs.directory import MANIFEST, TOURNAMENT
from evorun.runs.paths import display


def refuse_folder_of_records(key: str, folder: Path) -> None:
    """Raise ConfigError for a folder of a run or a tournament, or one inside it: reports and resumes rely on its files.

    key: of the option that names the folder, or a file in it.
    """
    for outer in (folder.resolve(), *folder.resolve().parents):
        if (outer / MANIFEST).exists() or (outer / TOURNAMENT).exists():
            raise ConfigError(
                f"{key}: expected a place outside run directories, got {display(folder)}; choose another one"
            )


def refuse_replacing(key: str, file: Path, *, overwrite: bool, content: bytes | None = None, how: str = "") -> None:
    """Raise ConfigError for a file that is there, unless told to overwrite it.

    content: what is to be written, where that is known already; writing the same again is no loss, and an interrupted
    pipeline may repeat it. how: the option that overwrites, by default overwrite=true.
    """
    if overwrite or not (file.exists() or file.is_symlink()):
        return
    if content is None:
        raise ConfigError(f"{key}: {display(file)} exists; {how or 'overwrite=true'} replaces it")
    if not (file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content):
        raise ConfigError(f"{key}: {display(file)} exists with another content; {how or 'overwrite=true'} replaces it")

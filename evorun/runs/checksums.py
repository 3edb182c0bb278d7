"""Checksums of a run's files, by which a report or a resume detects changes."""

import hashlib
import os
from collections.abc import Collection
from functools import partial
from io import BufferedReader
from pathlib import Path

from evorun.errors import EvorunError
from evorun.runs.files import open_regular
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import open_journal
from evorun.runs.manifest import Manifest, Signed

LONG_FILE = 16 << 20
"""Bytes from which a file is read once in a process for each time that it was written; reading a shorter one takes no
longer than the clock of the file system takes to tell two writes apart (ours)."""
_known: dict[tuple[int, ...], str] = {}
"""Digests of long files, by all that a write changes."""


def checksums(folder: Path) -> dict[str, str]:
    """Return the digest of each file that holds results, by its path in the run's folder."""
    figures = [folder / "results.json", folder / "aggregates.json"]
    files = [*folder.glob("*.jsonl"), *figures, *(folder / "artifacts").rglob("*")]
    return {file.relative_to(folder).as_posix(): _digest(file) for file in sorted(files) if file.is_file()}


def is_unchanged(folder: Path, manifest: Manifest, name: str) -> bool:
    """Return whether a file has the checksum that the completed run recorded; False for a run without checksums."""
    try:
        return name in manifest.files and _digest(folder / name) == manifest.files[name]
    except OSError:
        return False


def changed_files(folder: Path, manifest: Manifest, unread: Collection[str] = ()) -> list[str]:
    """Return a line for each file that has changed since the run completed; none for a run without checksums.

    unread: files that must exist but are not read, because the caller does not show them; reading them can take
    seconds. If there are any, the journal is not read either.
    """
    if not manifest.files:
        return []
    lines = []
    for name, digest in manifest.files.items():
        try:
            if name in unread:
                (folder / name).stat()
            elif _digest(folder / name) != digest:
                lines.append(f"{name} is not as the run left it: its checksum differs")
        except OSError as error:
            lines.append(f"{name} is not as the run left it: {error.strerror}")
    if unread:
        return lines
    try:
        check_journal(folder)
    except EvorunError as error:
        lines.append(str(error))
    return lines


def check_journal(folder: Path) -> None:
    """Raise JournalError for a damaged journal."""
    journal = open_journal(folder / JOURNAL)
    try:
        journal.check()
    finally:
        journal.close()


def state_checksums(folder: Path) -> dict[str, str]:
    """Return the digest of each file that a resume continues from, by its path in the run's folder. Raises OSError."""
    files = [*_replayed(folder), *(folder / "artifacts").rglob("*")]
    return {file.relative_to(folder).as_posix(): _digest(file) for file in sorted(files) if file.is_file()}


def changed_state(folder: Path, manifest: Signed) -> list[str]:
    """Return a line for each file that a resume would continue from and that has changed since the last process.

    Missing files are ignored, since they change no result; so are artifacts that studies added. Without a recorded
    state there are no lines.
    """
    state = manifest.state
    if state is None:
        return []
    lines = []
    for name in sorted({*(file.relative_to(folder).as_posix() for file in _replayed(folder)), *state}):
        file = folder / name
        try:
            if file.is_file() and _digest(file) != state.get(name):
                difference = "its checksum differs" if name in state else "it was not there"
                lines.append(f"{name} is not as the run left it: {difference}")
        except OSError as error:
            lines.append(f"{name} is not as the run left it: {error.strerror}")
    return lines


def _replayed(folder: Path) -> list[Path]:
    journals = (
        file for file in folder.glob(f"{JOURNAL}*") if not file.name.endswith("-shm")
    )  # an index, which SQLite rebuilds
    return [file for file in (*journals, *(folder / "checkpoints").rglob("*")) if file.is_file()]


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size < LONG_FILE:
            return _hash_file(file)
        # A resume of a finished run compares its files when it asks for consent, when it begins and for the summary.
        version = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if version not in _known:
            _known[version] = _hash_file(file)
        return _known[version]


def _hash_file(file: BufferedReader) -> str:
    return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()

"""The journals that hold a run's effects: its own and, for a run that replays a recording, the recording's too."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evorun.errors import RunDirectoryError
from evorun.runs.directory import ENGINES, MANIFEST, find_recording, load_manifest
from evorun.runs.journal_file import JOURNAL, Effect, Key
from evorun.runs.journal_reader import JournalReader, open_journal
from evorun.runs.manifest import Manifest
from evorun.runs.ownership import is_own


def open_effects(run: Path) -> JournalReader:
    """Open the effects of a run for reading. Raises RunDirectoryError where a journal cannot be read.

    Somebody else's manifest may name any folder of this machine, so only the user's own runs are followed.
    """
    journals: list[JournalReader] = []
    seen: set[Path] = set()
    folder: Path | None = run
    try:
        while folder is not None:
            if folder.resolve() in seen:
                raise RunDirectoryError(f"{run} replays itself: expected engine.run to name the run that was recorded")
            seen.add(folder.resolve())
            journals.append(open_journal(folder / JOURNAL))
            # a tournament's folder and a bare journal have no manifest
            manifest = load_manifest(folder) if (folder / MANIFEST).exists() else None
            recording = None if manifest is None else find_recording(manifest.config)
            folder = recording if recording is not None and manifest is not None and is_own(manifest) else None
    except BaseException:
        for journal in journals:
            journal.close()
        raise
    return journals[0] if len(journals) == 1 else _Chain(journals)


def find_first_own_step(run: Path) -> int | None:
    """Return the first step that a fork asked with its own settings; None for a run that asked all with its own.

    A replay is asked what the run was that it replays. `open_effects` has refused a run that replays itself.
    """
    folder: Path | None = run
    while folder is not None and (folder / MANIFEST).exists():
        manifest = load_manifest(folder)
        if manifest.origin is not None:
            return manifest.origin.first_own_step
        folder = find_recording(manifest.config) if is_own(manifest) else None
    return None


def restore_engines(manifest: Manifest) -> dict[str, Any]:
    """Return a run's configuration, of a replay with the engines of the run that it replays.

    These tell one simulated model from another. A recording that is gone leaves the configuration as it is.
    """
    seen: set[Path] = set()
    config: Mapping[str, Any] = manifest.config
    with suppress(RunDirectoryError):
        while (folder := find_recording(manifest.config)) is not None and is_own(manifest):
            if folder.resolve() in seen:
                break
            seen.add(folder.resolve())
            manifest = load_manifest(folder)
            config = {**config, **{key: manifest.config[key] for key in ENGINES if key in manifest.config}}
    return dict(config)


class _Chain:
    """Several journals read as one, in the given order."""

    def __init__(self, journals: Sequence[JournalReader]) -> None:
        self.path = journals[0].path
        self._journals = journals
        self._places: list[tuple[JournalReader, int]] = []
        for journal in journals:
            self._places += [(journal, number) for number, _ in enumerate(journal.index())]

    def index(self) -> Iterator[Key]:
        for journal in self._journals:
            yield from journal.index()

    def count(self) -> int:
        return len(self._places)

    def key(self, number: int) -> Key:
        journal, local_number = self._places[number]
        return journal.key(local_number)

    def result(self, number: int) -> bytes:
        journal, local_number = self._places[number]
        return journal.result(local_number)

    def effect(self, number: int) -> Effect:
        journal, local_number = self._places[number]
        return journal.effect(local_number)

    def spent(self, number: int) -> tuple[str | None, float]:
        journal, local_number = self._places[number]
        return journal.spent(local_number)

    def check(self) -> None:
        for journal in self._journals:
            journal.check()

    def close(self) -> None:
        for journal in self._journals:
            journal.close()

"""Runs below some folders as rows of a table, each read again only when its files or its lock have changed."""

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from evorun.reports.packing import cut
from evorun.runs.directory import LOCK, MANIFEST, RESULTS, TOURNAMENT, find_recording
from evorun.runs.files import is_locked, read_regular
from evorun.runs.job_search import display_as_text, find_folders
from evorun.runs.job_states import JobStatus, look_at
from evorun.runs.manifest import ModelInRun
from evorun.runs.slurm import RecentStates
from evorun.runs.studies import FIGURES
from evorun.runs.sweeps import job_statuses
from evorun.viewer.settings import Value, find_differing_keys, list_settings

MAX_SUMMARY_BYTES = 8 << 20
"""Maximum bytes of manifest.json or results.json (ours): evorun's have some thousand."""
_MAX_ENTRIES = 1_000
"""Maximum entries of a run directory (ours): evorun writes some twenty."""
_MAX_LINE = 300
"""Maximum characters of a name, an error or a note (ours)."""
_REJUDGINGS = "rejudge"
_NOT_SHOWN = (LOCK, "evorun.log")
"""Files that are written without a change to what is shown."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the page lists it."""

    id: str
    """Names the run in addresses; says nothing of its folder."""
    sweep: str | None
    """Folder of its sweep; null for a run by itself."""
    status: JobStatus
    opens: bool
    """False where there is nothing to open yet, or something that is not opened."""
    origin: str | None = None
    """Its source: `fork of outputs/a from step 2`, `replay of outputs/a`; null for a run of its own."""
    rejudged: int = 0
    """Number of its completed rejudgings."""
    method: str | None = None
    task: str | None = None
    model: str | None = None
    """The policy; of several, the first."""
    seed: int | None = None
    started: str | None = None
    seconds: float | None = None


class Found(NamedTuple):
    """A run whose pages can be shown."""

    folder: Path
    state: str
    """Differs once its files have changed."""
    is_tournament: bool


class _Origin(msgspec.Struct):
    """The part of a manifest's origin that is shown."""

    verb: Literal["fork", "extend"]
    run: str
    at: int | None = None


class _Facts(msgspec.Struct):
    """The part of manifest.json that tells one run from another."""

    method: str
    task: str
    seed: int | None
    started: str
    models: dict[str, ModelInRun]
    config: dict[str, Any]
    seconds: float | None = None
    origin: _Origin | None = None


class _TournamentFacts(msgspec.Struct):
    """The part of tournament.json that tells one tournament from another."""

    task: str
    started: str
    judge: ModelInRun


_decoder = msgspec.json.Decoder(_Facts)
_tournament_decoder = msgspec.json.Decoder(_TournamentFacts)


class _Scan(NamedTuple):
    """A run directory's files, none of them opened."""

    state: str
    """Differs once any of them has changed."""
    manifest: tuple[int, int]
    """Time and size of the manifest."""
    reason: str | None
    """Why none of them is opened."""


@dataclass(frozen=True)
class _Seen:
    """A run directory's files as they were read last."""

    run: Path
    state: str
    manifest: tuple[int, int]
    status: JobStatus
    facts: _Facts | None
    rejudged: int
    settings: Mapping[str, Value]


@dataclass(frozen=True)
class _Entry:
    """A run as the page has it."""

    seen: _Seen
    status: JobStatus
    """The status by the files and by a sweep's scheduler."""
    row: msgspec.Raw
    version: int
    """The index's version at which anything of it changed last."""


class Index:
    """The runs below some folders. `refresh` may run in a thread of its own while the event loop calls the others."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._slurm = RecentStates()
        self._seen: dict[Path, _Seen] = {}
        self._entries: dict[str, _Entry] = {}
        self._keys: list[str] = []
        self.version = 0
        """Number of the last change; 0 before the first look."""

    def __len__(self) -> int:
        return len(self._entries)

    def refresh(self) -> None:
        """Look at the folders again. Raises RunDirectoryError for what is no folder."""
        before, version = self._entries, self.version + 1
        earlier, self._seen = self._seen, {}
        entries: dict[str, _Entry] = {}
        for root in self.folders:
            for run, sweep, status in self._find_jobs(root, earlier):
                number = hashlib.sha256(os.path.abspath(os.fsencode(run))).hexdigest()[:12]
                known, seen = before.get(number), self._seen[run]
                if known is not None and known.seen is seen and known.status == status:
                    entries.setdefault(number, known)
                else:
                    row = msgspec.Raw(msgspec.json.encode(_make_row(number, sweep, status, seen)))
                    entries.setdefault(number, _Entry(seen, status, row, version))
        if list(entries) == list(before) and all(entry is before[number] for number, entry in entries.items()):
            return
        if {id(entry.seen.settings) for entry in entries.values()} != {
            id(entry.seen.settings) for entry in before.values()
        }:
            keys = find_differing_keys([entry.seen.settings for entry in entries.values()])
            if keys != self._keys:
                entries = {number: replace(entry, version=version) for number, entry in entries.items()}
                self._keys = keys
        self._entries, self.version = entries, version

    def changes(self, since: int) -> dict[str, Any]:
        """Return the order of all runs and those that have changed since a version; its number alone where none has.

        since: 0 for all runs.
        """
        entries, keys, version = self._entries, self._keys, self.version
        if since == version:
            return {"version": version}
        runs = [
            {"run": entry.row, "settings": {key: settings[key] for key in keys if key in settings}}
            for entry in entries.values()
            if entry.version > since
            for settings in (entry.seen.settings,)
        ]
        return {"version": version, "order": list(entries), "keys": keys, "runs": runs}

    def find(self, number: str) -> Found | None:
        """Return the run of an id; None where there is none to open."""
        entry = self._entries.get(number)
        if entry is None or entry.seen.facts is None:
            return None
        return Found(entry.seen.run, entry.seen.state, entry.status.kind == "tournament")

    def _find_jobs(self, root: Path, earlier: Mapping[Path, _Seen]) -> Iterator[tuple[Path, str | None, JobStatus]]:
        """Yield the jobs below a folder, each with the folder of its sweep and its status."""
        inside = _Inside(root)

        def look(run: Path, name: str, *, begun: bool = False) -> JobStatus:
            seen = self._seen[run] = _look(run, name, begun, inside, earlier.get(run))
            return seen.status

        for folder, sweep in find_folders(root):
            shown = display_as_text(folder)
            if sweep is None:
                yield folder, None, look(folder, shown)
            else:
                statuses = job_statuses(folder, sweep, look, self._slurm.query)
                yield from (
                    (folder / job.folder, shown, status) for job, status in zip(sweep.jobs, statuses, strict=True)
                )


class _Inside:
    """A folder that tells runs which lie below it from runs behind a link."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._resolved = root.resolve()
        self._parents: dict[Path, bool] = {}
        """Resolving a path takes longer than reading the run's folder, and a sweep's runs share theirs."""

    def holds(self, run: Path) -> bool:
        if run == self.root:
            return True
        parent = run.parent
        if parent not in self._parents:
            self._parents[parent] = parent.resolve().is_relative_to(self._resolved)
        return self._parents[parent] and not run.is_symlink()


def _look(run: Path, name: str, begun: bool, inside: _Inside, before: _Seen | None) -> _Seen:
    """Return what a run's files say: the same object as before where none has changed."""
    scan = _scan(run, inside)
    locked = scan.reason is None and is_locked(run / LOCK)
    state = f"{scan.state} {scan.reason} {locked} {begun} {name}"
    if before is not None and before.state == state:
        return before
    if scan.reason is not None:
        status = JobStatus(folder=display_as_text(run), name=name, state="waiting", note=scan.reason)
        return _Seen(run, state, scan.manifest, status, None, 0, {})
    status = look_at(run, name, begun=begun)
    facts = _read_facts(run, status.kind)
    same = before is not None and before.manifest == scan.manifest
    settings = before.settings if before is not None and same else {} if facts is None else list_settings(facts.config)
    return _Seen(run, state, scan.manifest, status, facts, _count_rejudgings(run), settings)


def _make_row(number: str, sweep: str | None, status: JobStatus, seen: _Seen) -> Row:
    facts = seen.facts
    texts = {name: cut(getattr(status, name), _MAX_LINE) for name in ("name", "score", "error", "note")}
    status = msgspec.structs.replace(status, **texts)
    if facts is None:
        return Row(id=number, sweep=sweep, status=status, opens=False)
    model = facts.models.get("policy") or next(iter(facts.models.values()), None)
    return Row(
        id=number,
        sweep=sweep,
        status=status,
        opens=status.kind == "run" or status.state == "done",
        origin=cut(_describe_origin(facts), _MAX_LINE),
        rejudged=seen.rejudged,
        method=cut(facts.method, _MAX_LINE),
        task=cut(facts.task, _MAX_LINE),
        model=None if model is None else cut(model.kind, _MAX_LINE),
        seed=facts.seed,
        started=cut(facts.started, _MAX_LINE),
        seconds=facts.seconds,
    )


def _describe_origin(facts: _Facts) -> str | None:
    """Say which run a fork, an extension or a replay was made from."""
    origin, recording = facts.origin, find_recording(facts.config)
    if recording is not None:
        return f"replay of {display_as_text(recording)}"
    if origin is None:
        return None
    kind = "fork" if origin.verb == "fork" else "extension"
    since = "" if origin.at is None else f" from step {origin.at}"
    return f"{kind} of {display_as_text(Path(origin.run))}{since}"


def _scan(run: Path, inside: _Inside) -> _Scan:
    """Return the times and sizes of a run directory's files, and why they are not opened, if so."""
    files: list[str] = []
    manifest = (0, 0)
    reason = None
    if not inside.holds(run):
        note = f"it lies outside of {display_as_text(inside.root)}, behind a link that is not followed"
        return _Scan("", manifest, note)
    try:
        with os.scandir(run) as entries:
            for entry in itertools.islice(entries, _MAX_ENTRIES):
                found = entry.stat(follow_symlinks=False)
                if entry.name not in _NOT_SHOWN:
                    files.append(f"{entry.name!r} {found.st_mtime_ns} {found.st_size}")
                if stat.S_ISLNK(found.st_mode):
                    reason = f"it holds a symbolic link, {entry.name!r}, which is not followed"
                elif not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                    reason = f"it holds {entry.name!r}, which is no regular file"
                elif entry.name in (MANIFEST, RESULTS, TOURNAMENT) and found.st_size > MAX_SUMMARY_BYTES:
                    reason = f"its {entry.name} has more than {MAX_SUMMARY_BYTES:,} bytes"
                if entry.name in (MANIFEST, TOURNAMENT):
                    manifest = found.st_mtime_ns, found.st_size
    except OSError:
        return _Scan("", manifest, None)
    if len(files) + len(_NOT_SHOWN) >= _MAX_ENTRIES:
        reason = f"it holds {_MAX_ENTRIES:,} files or more"
    return _Scan(" ".join(sorted(files)), manifest, reason)


def _read_facts(run: Path, kind: Literal["run", "tournament"]) -> _Facts | None:
    try:
        if kind == "run":
            return _decoder.decode(read_regular(run / MANIFEST))
        found = _tournament_decoder.decode(read_regular(run / TOURNAMENT))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _Facts("tournament", found.task, None, found.started, {"judge": found.judge}, {})


def _count_rejudgings(run: Path) -> int:
    """Return the number of a run's completed rejudgings; none where their folder is a link."""
    folder = run / _REJUDGINGS
    if folder.is_symlink() or not folder.is_dir():
        return 0
    found = itertools.islice(folder.glob(f"*/{FIGURES}"), _MAX_ENTRIES)
    return sum(not file.parent.is_symlink() for file in found)

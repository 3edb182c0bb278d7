"""One file for a paper's appendix: runs that anybody replays without their models, and nothing of the machine.

A zip file, which every system opens. The same runs give the same bytes. SHA256SUMS holds a digest of each file, in the
format of `sha256sum -c`. A paper states the digest of the archive itself; `signing` signs it.
"""

import hashlib
import os
import re
import shlex
import socket
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evorun.errors import DataError
from evorun.models.keys import secret_values
from evorun.runs.configs import iterate_leaves
from evorun.runs.directory import ENGINES, MANIFEST, find_recording, load_manifest
from evorun.runs.files import open_regular
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import read_journal
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.runs.studies import FIGURES, REJUDGED, RejudgeManifest, find_rejudgings

SUMS = "SHA256SUMS"
README = "README.md"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date of a zip file: the archive does not depend on when it was made."""
_SERVERS = ("base_urls", "url_files", "proxy", "api_key_env")
"""Keys of an engine that name hosts and variables."""
_MIN_HOST = 4
"""Shortest host name that is searched for: shorter ones are words."""


def write_archive(runs: Mapping[str, Path], target: BinaryIO, *, keep_paths: bool = False) -> int:
    """Write the archive of completed runs, given by name, and return the number of their files in it.

    keep_paths: accept paths and host names of this machine in journals and records, where nothing can replace them.

    Raises DataError for a run that cannot be replayed, or a file that holds a key, a path or a host name; then the
    target is incomplete.
    """
    sums: dict[str, str] = {}
    with zipfile.ZipFile(target, "w") as archive:

        def add(path: str, content: bytes) -> None:
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
            sums[path] = hashlib.sha256(content).hexdigest()

        for name, folder in runs.items():
            manifest = load_manifest(folder)
            _require_replayable(folder, manifest)
            # the run's report shows its rejudgings
            archived: list[tuple[Path, Manifest | RejudgeManifest]] = [(folder, manifest), *find_rejudgings(folder)]
            for place, about in archived:
                traces = _Traces(place, about, keep_paths=keep_paths)
                for path, content in _contents(place, about):
                    traces.refuse(path, content)
                    add(f"{name}/{(place / path).relative_to(folder).as_posix()}", content)
                traces.refuse_in_journal()
        count = len(sums)
        add(README, _readme(list(runs)).encode())
        add(SUMS, "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())).encode())
    return count


def _require_replayable(folder: Path, manifest: Manifest) -> None:
    if manifest.status != "completed":
        raise DataError(f"{display(folder)}: expected a completed run, got one that is {manifest.status}")
    if find_recording(manifest.config) is not None:
        raise DataError(
            f"{display(folder)}: expected a run with model calls of its own, got a replay of another run; archive that"
        )


def _contents(folder: Path, manifest: Manifest | RejudgeManifest) -> Iterator[tuple[str, bytes]]:
    """Yield what a replay or a report reads, by path: no logs, checkpoints, pages or Hydra's files."""
    yield MANIFEST if isinstance(manifest, Manifest) else REJUDGED, _cleaned_manifest(manifest)
    figures = [folder / name for name in ("results.json", "aggregates.json", FIGURES)]
    for path in (
        folder / JOURNAL,
        *sorted(folder.glob("*.jsonl")),
        *figures,
        *sorted((folder / "artifacts").rglob("*")),
    ):
        if path.is_file():
            with open_regular(path) as file:
                yield path.relative_to(folder).as_posix(), file.read()


def _cleaned_manifest(manifest: Manifest | RejudgeManifest) -> bytes:
    """Return the manifest without the machine's paths and hosts; its signature is void then, and left out."""
    about: dict[str, Any] = msgspec.to_builtins(manifest)
    about["config"] = {key: value for key, value in about["config"].items() if key != "tracker"}
    for key in ENGINES:
        engine = about["config"].get(key)
        members = engine.get("members", [engine]) if isinstance(engine, dict) else []
        for member in members:
            for name in _SERVERS:
                if isinstance(member, dict) and name in member:
                    member[name] = [] if isinstance(member[name], list) else None
    about["command"] = [
        word
        for word in about["command"]
        if not re.search(rf"\.(?:{'|'.join(_SERVERS)})=|^\+*(?:tracker|hydra)\b", word)
    ]
    about |= {"signature": None, "state": None}
    cleaned = _without_paths(about)
    return msgspec.json.format(msgspec.json.encode(msgspec.convert(cleaned, type(manifest))), indent=2) + b"\n"


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    return _without_path(value) if isinstance(value, str) else value


def _without_path(text: str) -> str:
    """Return KEY=/a/b/c, or /a/b/c alone, with PATH in the place of the folders; other texts stay."""
    key, equals, value = text.rpartition("=")
    path = value.strip("'\"")
    return f"{key}{equals}PATH/{Path(path).name}" if os.path.isabs(path) and len(path) > 1 else text


class _Traces:
    """Texts that must not be in an archive of a run: keys, and names of this machine."""

    def __init__(self, folder: Path, manifest: Manifest | RejudgeManifest, *, keep_paths: bool) -> None:
        self._folder = folder
        self._keys = [value.encode() for value in secret_values()]
        names = [] if keep_paths else [re.escape(path).encode() + rb"(?![\w.-])" for path in _paths(folder, manifest)]
        host = socket.gethostname()
        if not keep_paths and len(host) >= _MIN_HOST and host != "localhost":
            names.append(rb"(?<![\w-])" + re.escape(host).encode() + rb"(?![\w-])")
        self._names = re.compile(b"|".join(names)) if names else None

    def refuse(self, name: str, content: bytes) -> None:
        """Raise DataError where a content holds any of it."""
        if any(key in content for key in self._keys):
            raise DataError(f"{display(self._folder)}: {name} holds the value of a key of this environment")
        found = None if self._names is None else self._names.search(content)
        if found is not None:
            raise DataError(
                f"{display(self._folder)}: {name} holds {found.group().decode(errors='replace')}, a name of this "
                "machine that nothing can replace; paths=keep archives it all the same"
            )

    def refuse_in_journal(self) -> None:
        """Search the requests and results, which the journal holds compressed."""
        for effect in read_journal(self._folder / JOURNAL):
            self.refuse(JOURNAL, effect.request + effect.result)


def _paths(folder: Path, manifest: Manifest | RejudgeManifest) -> set[str]:
    """Return absolute paths of this machine that a run may have written down."""
    configured = {
        value for _, value in iterate_leaves(manifest.config) if isinstance(value, str) and os.path.isabs(value)
    }
    own = {str(folder.resolve()), str(Path.cwd()), str(Path.home())}
    return {path for path in configured | own if path.count("/") > 1}  # /root and the like occur in texts


def _readme(names: list[str]) -> str:
    lines = "\n".join(f"    evorun replay {shlex.quote(name)}" for name in names)
    return (
        "# Recorded runs\n\n"
        "Each folder is a run directory of evorun: its journal holds every request and reply. Check the files with\n\n"
        f"    sha256sum -c {SUMS}\n\n"
        "`evorun report FOLDER` draws a run's report. To repeat the runs without their models, install the version of\n"
        "evorun that manifest.json names, and run in this folder:\n\n"
        f"{lines}\n\n"
        "It says whether the records are equal to those here. PATH/ stands for a folder of the machine that made the\n"
        "runs: put your own in its place.\n"
    )

"""The run directory: a manifest, one configuration for good, and a lock for one process at a time."""

import contextlib
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from omegaconf._utils import OmegaConfDumper

import evorun
from evorun.errors import ConfigError, JournalError, RunDirectoryError
from evorun.models.config import OTHER_ROLES
from evorun.runs.checksums import changed_files, changed_state, checksums, state_checksums
from evorun.runs.environment import git_commit, hardware, package_versions
from evorun.runs.files import read_json, reject_links, take_lock
from evorun.runs.formats import counted
from evorun.runs.history import History
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL
from evorun.runs.live import PROGRESS
from evorun.runs.manifest import GpuInRun, Manifest, PluginInRun, Signed, SmallerPasses, StageInRun, Status
from evorun.runs.ownership import sign
from evorun.runs.paths import display
from evorun.runs.records import RecordFile, write_atomically, write_json

log = logging.getLogger("evorun")

MANIFEST = "manifest.json"
HYDRA = ".hydra"
RESULTS = "results.json"
REPORT = "report.html"
LOCK = ".lock"
REFUSED_JOURNAL = "journal_refused_{}.sqlite"
"""A copy of the journal with the calls of a refused resume; runs read the journal alone."""
"""Held by the process that works on a run, or carries out a sweep."""
TOURNAMENT = "tournament.json"
PROBLEMS = "problems.jsonl"
TRAINING = "training"
"""Records of training steps, in runs that train."""
RATINGS = "ratings"
"""Ratings of candidates that serve all problems, in runs that have such candidates."""
ROLLOUTS = "rollouts"
"""Episodes of training steps, in runs that play them."""
PROMPT_SCORES = "prompt_scores"
"""Test scores of the prompts of a step, in runs that test more than one."""
RUBRIC_SCORES = "rubric_scores.json"
"""Artifact: the scores that each rubric of a run gives its test responses, once a study has measured them."""
RECORDS = ("steps", "candidates", "comparisons", "predictions")

ENGINES = ("engine", *(f"{role}_engine" for role in OTHER_ROLES), "teacher_engine")
EXECUTION_KEYS = (*ENGINES, "sandbox", "tracker", "run", "evorun", "hydra", "prices", "reported", "study")
"""Top-level config keys that decide how a run is executed, not its results; they may change on a resume."""

TRAINING_EXECUTION_KEYS = (
    "micro_batch",
    "micro_batch_tokens",
    "gradient_checkpointing",
    "num_processes",
    "hang_timeout",
    "devices",
    "accelerate_config",
    "reference",
    "nodes",
    "launch_command",
    "start_timeout",
    "save_every",
    "keep",
)
"""The same among the keys of `training`: a run that ran out of memory can continue with smaller batches."""

SPARE_BYTES = 1 << 17
"""Size of the file that is deleted on a full disk to make room for the last manifest; far more than that needs
(ours)."""

REDO_CALLS = "--redo-calls"
"""The option by which a user agrees to repeat all calls whose journal is missing."""

REPLAY = "replay"
"""The engine that answers from another run's journal, so that the replaying run records no model calls."""

SIMULATED = "simulated"
"""The engine that is itself the model: other settings of it make another run."""


def load_manifest(path: Path) -> Manifest:
    """Read a run directory's manifest. Raises RunDirectoryError when there is none or it is malformed."""
    missing = f"{path} is not a run directory: expected a file {MANIFEST} in it"
    return read_json(path / MANIFEST, Manifest, missing=missing)


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a run's configuration that decides what it computes."""
    kept = {
        key: value
        for key, value in config.items()
        if key not in EXECUTION_KEYS or (isinstance(value, Mapping) and value.get("name") == SIMULATED)
    }
    if isinstance(kept.get("training"), Mapping):
        kept["training"] = {key: value for key, value in kept["training"].items() if key not in TRAINING_EXECUTION_KEYS}
    for group, copied in (("task", "sampling"), ("budget", "methods")):  # already composed into `method`
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key != copied}
    return kept


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the identity part of a configuration."""
    return hashlib.sha256(msgspec.json.encode(identity(config), order="deterministic")).hexdigest()


def find_recording(config: Mapping[str, Any]) -> Path | None:
    """Return the run that a run with this configuration replays; None where a model answers."""
    engine = config.get("engine")
    if not isinstance(engine, Mapping) or engine.get("name") != REPLAY or not isinstance(engine.get("run"), str):
        return None
    return Path(engine["run"])


def iterate_differences(before: Any, after: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the key and both values of each leaf in which two configurations differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from iterate_differences(before.get(key), after.get(key), f"{prefix}.{key}" if prefix else str(key))
    elif before != after:
        yield prefix, before, after


def list_differences(before: Any, after: Any, prefix: str = "") -> list[str]:
    """Return one line for each leaf in which a directory's configuration differs from the present one."""
    differences = iterate_differences(before, after, prefix)
    return [f"{key}: {was!r} in the directory, {now!r} now" for key, was, now in differences]


def refuse_other_version(path: Path, version: str) -> None:
    """Raise RunDirectoryError when another version of evorun made the directory."""
    if version != evorun.__version__:
        raise RunDirectoryError(
            f"{path} was made by evorun {version}, this is {evorun.__version__}: continue it with that version or "
            "start a new run"
        )


def name_plugin(manifest: Manifest, kind: str) -> str:
    """Name a run's plug-in of a kind: `method=mine`."""
    return f"{kind}={getattr(manifest, kind, manifest.plugins[kind].module)}"


def name_changed_plugins(earlier: Manifest, fresh: Manifest) -> list[str]:
    """Return the names of the plug-ins of a run whose code has changed."""
    return [
        name_plugin(fresh, kind)
        for kind, plugin in fresh.plugins.items()
        if plugin != earlier.plugins.get(kind, plugin)
    ]


def list_changes(earlier: Manifest, fresh: Manifest) -> list[str]:
    """Return what is known to have changed since the earlier process, beside the configuration and the problems."""
    changes = [f"the code of {name}" for name in name_changed_plugins(earlier, fresh)]
    if earlier.git_commit != fresh.git_commit:
        changes.append(f"evorun's code, from commit {earlier.git_commit} to {fresh.git_commit}")
    prompts = (fresh.config.get("task") or {}).get("prompts")
    if isinstance(prompts, str):
        began = datetime.fromisoformat(earlier.started).timestamp()
        files = sorted(file for file in Path(prompts).rglob("*") if file.is_file())
        changes += [display(file) for file in files if file.stat().st_mtime > began]
    return changes


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]
    """OmegaConf's, which quotes texts that it would read as another type; a tenth of the time, in C."""


_Dumper.add_representer(str, OmegaConfDumper.str_representer)


def _to_yaml(content: object) -> bytes:
    written: str = yaml.dump(content, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)
    return written.encode()


class RunDirectory:
    """An open run directory; holds its lock until `close`."""

    def __init__(self, path: Path, key: str = "hydra.run.dir") -> None:
        """Create or open the folder and lock it. Raises RunDirectoryError when it is in use or not writable.

        key: by which the user chooses the folder.
        """
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = take_lock(path / LOCK)
        except BlockingIOError as error:
            raise RunDirectoryError(f"another evorun process is using {path}; wait for it or stop it") from error
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the run directory {path}: {error.strerror}; choose another with {key}=FOLDER"
            ) from error
        self._journal: Journal | None = None
        self._records: dict[str, RecordFile] = {}
        self._spare = path / ".spare"
        self.manifest: Manifest | None = None
        self._earlier: Manifest | None = None
        """The manifest of the process before this one, if any."""
        self._replaced: dict[Path, bytes] = {}
        """Small files of the process before this one, which this one replaces."""
        self._changes: list[str] = []
        """The changes since then that are known."""
        self._plugins: dict[str, PluginInRun] = {}
        """The plug-ins as they are now; the manifest has those of the beginning until a call is made with these."""

    @property
    def journal(self) -> Journal:
        """The journal, opened on first use."""
        if self._journal is None:
            self._journal = Journal(self.path / JOURNAL)
        return self._journal

    def records(self, name: str) -> RecordFile:
        """Return the record file `name`.jsonl, opened on first use."""
        if name not in self._records:
            self._records[name] = RecordFile(self.path / f"{name}.jsonl")
        return self._records[name]

    def begin(self, fresh: Manifest, *, redo_calls: bool = False) -> bool:
        """Start or continue the run that `fresh` describes; return False for a completed run whose files are intact.

        redo_calls: continue although the journal is missing. Raises ConfigError when the directory belongs to another
        configuration or other problems (naming the difference), RunDirectoryError when it belongs to another version of
        evorun, when a link lies in the place of a file or folder, or when the journal is missing; JournalError for a
        damaged journal.
        """
        reject_links(self.path)
        if (self.path / MANIFEST).exists():
            earlier = load_manifest(self.path)
            self._refuse_other_run(earlier, fresh)
            if not redo_calls and not (self.path / JOURNAL).exists():
                raise RunDirectoryError(
                    f"{display(self.path / JOURNAL)} is missing, which held the model calls of this run: restore it; "
                    f"or make, and pay for, all of them again with: evorun resume {display(self.path)} {REDO_CALLS}"
                )
            ended = earlier.status == "completed" and bool(earlier.files)
            changed = [*(changed_files(self.path, earlier) if ended else ()), *changed_state(self.path, earlier)]
            if ended and not changed:
                return False
            for line in dict.fromkeys(changed):
                log.warning("%s", line)
            for name in name_changed_plugins(earlier, fresh):
                log.warning("the code of %s has changed since the run began", name)
            self._earlier, self._changes = earlier, list_changes(earlier, fresh)
            replaced = [self.path / HYDRA / "config.yaml", self.path / HYDRA / "overrides.yaml", self.path / PROGRESS]
            self._replaced = {file: file.read_bytes() for file in replaced if file.is_file()}
            if redo_calls:  # whose number counts from the beginning again
                (self.path / PROGRESS).unlink(missing_ok=True)
            self._plugins, fresh.plugins = fresh.plugins, {**fresh.plugins, **earlier.plugins}
            fresh.started = earlier.started
            fresh.resumes = earlier.resumes + 1
            fresh.seconds = earlier.seconds
            fresh.stages = earlier.stages
            fresh.smaller_passes = earlier.smaller_passes
            fresh.gpus = earlier.gpus
            fresh.origin = earlier.origin
            fresh.prices, fresh.gpu_price = earlier.prices, earlier.gpu_price
        self._journal = Journal(self.path / JOURNAL)  # before the manifest, so that a manifest implies a journal
        if fresh.origin is not None:
            training = fresh.config.get("training")
            lag = training.get("max_lag", 0) if isinstance(training, Mapping) else 0
            self._journal.history = History(fresh.origin, self._journal.keys(), lag)
        self._reserve()
        self.manifest = fresh
        self._save_manifest()
        # written here, not by Hydra (`hydra.output_subdir` is null), which would write before another run's folder is
        # refused
        folder = self.path / HYDRA
        folder.mkdir(exist_ok=True)
        for name, content in (("config", fresh.config), ("overrides", fresh.command[1:])):
            write_atomically(folder / f"{name}.yaml", _to_yaml(content))
        return True

    def _refuse_other_run(self, earlier: Manifest, fresh: Manifest) -> None:
        """Raise RunDirectoryError when two manifests are of different runs."""
        refuse_other_version(self.path, earlier.evorun_version)
        # before the configurations: a simulated run has other settings, and a long list of them hides the reason
        if earlier.simulated != fresh.simulated:
            kind = {True: "simulated", False: "not simulated"}
            raise RunDirectoryError(
                f"{self.path} holds a run that is {kind[earlier.simulated]}, this one is {kind[fresh.simulated]}: "
                "start it in a directory of its own"
            )
        recording = find_recording(earlier.config)
        if earlier.status != "completed" and recording is not None and find_recording(fresh.config) is None:
            raise RunDirectoryError(
                f"{self.path} replays {display(recording)}, whose journal holds its model calls: resume it with "
                "engine=replay, or resume the recorded run itself"
            )
        changed = list_differences(identity(earlier.config), identity(fresh.config))
        before, after = msgspec.to_builtins(earlier.provenance), msgspec.to_builtins(fresh.provenance)
        changed += list_differences(before, after, "data")
        if changed:
            raise ConfigError(f"{self.path} belongs to another configuration ({'; '.join(changed)})")

    def _reserve(self) -> None:
        """Reserve disk space, so that even on a full disk the manifest can say how the run ended."""
        try:
            with self._spare.open("wb") as spare:
                os.posix_fallocate(spare.fileno(), 0, SPARE_BYTES)
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self._spare}: {error.strerror}") from error

    def note_student(self, stages: Mapping[str, StageInRun], model: str) -> None:
        """Record the stages that made the run's model, and the model's id, which is known only after them."""
        assert self.manifest is not None  # noqa: S101 - the run has begun
        self.manifest.stages = dict(stages)
        self.manifest.models["policy"].id = model
        self._save_manifest()

    def note_smaller_passes(self, made: SmallerPasses) -> None:
        """Record that the trainer's passes were reduced after memory had run out."""
        if self.manifest is not None:
            self.manifest.smaller_passes = [*self.manifest.smaller_passes, made]
            self._save_manifest()

    def note_gpus(self, gpus: Sequence[GpuInRun]) -> None:
        """Keep the time in which each GPU had work for the manifest, which `end` writes."""
        if self.manifest is not None:
            self.manifest.gpus = list(gpus)

    def end(self, status: Status, seconds: float, error: str | None = None) -> None:
        """Record the end of this process's work on the run; its seconds add to those of earlier processes."""
        if self.manifest is None:
            return
        self.manifest.status = status
        self.manifest.ended = current_time()
        self.manifest.seconds = round((self.manifest.seconds or 0.0) + seconds, 3)
        self.manifest.error = error
        if self._plugins and self._journal is not None and self._journal.has_grown:  # their code has had an effect
            self.manifest.plugins = self._plugins
        if self.manifest.origin is not None and self._journal is not None and status == "completed":
            used = self._journal.count_used_calls()
            self.manifest.origin = msgspec.structs.replace(self.manifest.origin, used_calls=used)
        self.seal(self.manifest)
        if status == "completed":
            self.manifest.files = checksums(self.path)
        try:
            self._save_manifest()
        except RunDirectoryError:
            self._spare.unlink(missing_ok=True)
            self._save_manifest()

    def withdraw(self, error: JournalError) -> JournalError:
        """End a resume that contradicts what is recorded: leave the folder as it was before, with the error.

        Return the error with the changes that are known.
        """
        assert self._earlier is not None  # noqa: S101 - the run is a resumed one
        copies = (self.path / REFUSED_JOURNAL.format(number) for number in itertools.count(1))
        copy = next(path for path in copies if not path.exists())
        calls = self.journal.set_aside_new(copy)
        for records in self._records.values():
            records.discard_new()
        for file, content in self._replaced.items():
            write_atomically(file, content)
        named = f"; changed since: {', '.join(self._changes)}" if self._changes else ""
        removed = f"; the {counted(calls, 'call')} that it made are in {copy.name}" if calls else ""
        said = type(error)(f"{error}{named}; the folder is as it was before this resume{removed}")
        self.manifest, self.manifest.status, self.manifest.error = self._earlier, "failed", str(said)
        self.manifest.ended, self.manifest.files = self.manifest.ended or current_time(), {}
        self.seal(self.manifest)
        self._save_manifest()
        return said

    def seal(self, manifest: Signed) -> None:
        """Close the journal, and sign in a manifest what a resume would continue from."""
        if self._journal is not None:  # its checksum covers all that it writes
            self._journal.close()
        with contextlib.suppress(OSError):  # without a state, a resume asks whether to trust the folder
            manifest.state = state_checksums(self.path)
            manifest.signature = sign(manifest.config, manifest.state)

    def finish_records(self, problem_ids: list[str]) -> None:
        """Sort all records by the order of the problems; records of no problem come last."""
        for name in RECORDS:
            self.records(name).finish(problem_ids)
        for name in self._records.keys() - RECORDS:  # records of the run itself are in the order of its steps
            self._records[name].close()
        self._records.clear()

    def close(self) -> None:
        """Close all files and release the lock; idempotent."""
        for file in self._records.values():
            file.close()
        self._records.clear()
        with contextlib.suppress(OSError):
            self._spare.unlink(missing_ok=True)
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _save_manifest(self) -> None:
        write_json(self.path / MANIFEST, self.manifest)


def current_time() -> str:
    """Return the current time in ISO 8601 with the zone."""
    return datetime.now(UTC).astimezone().isoformat(timespec="seconds")


def describe_environment() -> dict[str, Any]:
    """Return what the manifest of whatever starts now says of its program and its machine."""
    return {
        "status": "running",
        "started": current_time(),
        "evorun_version": evorun.__version__,
        "git_commit": git_commit(),
        "packages": package_versions(),
        "hardware": hardware(),
    }


def new_manifest(**about: Any) -> Manifest:
    """Return the manifest of a run that starts now, with the environment filled in."""
    return Manifest(
        **describe_environment(),
        config_digest=config_digest(about["config"]),
        signature=sign(about["config"]),
        **about,
    )

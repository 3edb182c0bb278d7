"""A study of a completed run, in a folder of its own below it: calls through a journal, so that it can be resumed.

The folder is named by a digest of all that decides the study's result. So others lie beside it, and a complete one is
not paid for again.
"""

import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from evorun.errors import ConfigError, DataError, RunDirectoryError
from evorun.models.base import LanguageModel
from evorun.models.config import ServedModel
from evorun.runner.served import find_engine_key, open_lazily
from evorun.runner.settings import RunConfig, check
from evorun.runner.work import Effects, Engines, carry_out_study, open_effects
from evorun.runs.budget import Meter
from evorun.runs.directory import RunDirectory, describe_environment, load_manifest, refuse_other_version
from evorun.runs.files import read_json
from evorun.runs.ownership import sign
from evorun.runs.paths import display
from evorun.runs.records import write_json
from evorun.runs.schema import Spent
from evorun.runs.studies import StudyManifest
from evorun.runs.terminal import Terminal
from evorun.tasks.base import GradingTools, LoadedTask

Work = Callable[[RunDirectory, Effects], Awaitable[None]]
"""Asks the models and writes the study's records."""


class RunStudy:
    """The common part of all studies of a run; a subclass asks the models."""

    verb: ClassVar[str]
    """The command that begins such a study; also the name of the folder that holds them."""
    manifest_class: ClassVar[type[StudyManifest]]

    def __init__(self, run: Path, config: Mapping[str, Any], console: Terminal) -> None:
        """config: by which the study is carried out, complete like a run's.

        Raises ConfigError for a run that has not completed.
        """
        self._manifest = manifest = load_manifest(run)
        if manifest.status != "completed":
            raise ConfigError(f"{display(run)}: expected a completed run, its status is {manifest.status}")
        self._run, self._config, self._console = run, dict(config), console
        self.folder = run
        """That of the study, once it has begun."""
        self._checked: RunConfig = check(config)
        self._meter = Meter()
        """Counts the study's calls; a subclass may limit it."""

    def _carry_out(
        self,
        identity: Mapping[str, Any],
        served: Mapping[str, ServedModel],
        loaded: LoadedTask,
        work: Work,
        *,
        command: Sequence[str],
        settings: dict[str, Any],
        resumed: Path | None,
        **own: Any,
    ) -> None:
        """Carry out the study, or continue it.

        identity: all that decides its results. served: its models by role. own: further fields of the manifest.
        resumed: the folder of the study, where it continues an earlier one. Raises RunDirectoryError when `resumed`
        holds another study, KeyboardInterrupt when it is stopped, and whatever error stops a run.
        """
        self.folder = self._run / self.verb / digest(identity)
        if resumed is not None and resumed.resolve() != self.folder.resolve():
            raise RunDirectoryError(
                f"{display(resumed)} holds another study: the run's records, data or settings, or the task's code, "
                "have changed since"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        file = f"{self.verb}.json"
        with contextlib.closing(RunDirectory(self.folder)) as directory:
            manifest = self.manifest_class(
                **describe_environment(),
                command=list(command),
                simulated=self._manifest.simulated or any(_has_no_model(model) for model in served.values()),
                settings=settings,
                identity={name: digest(content) for name, content in identity.items()},
                config=self._config,
                signature=sign(self._config),
                **own,
            )
            if (self.folder / file).exists():
                earlier = read_json(self.folder / file, self.manifest_class)
                refuse_other_version(self.folder, earlier.evorun_version)
                manifest.started = earlier.started
            carry_out_study(directory, file, manifest, lambda: self._work(directory, served, loaded, work))

    async def _work(
        self, directory: RunDirectory, served: Mapping[str, ServedModel], loaded: LoadedTask, work: Work
    ) -> None:
        def open_engines(tools: GradingTools) -> Engines:
            opened: list[tuple[ServedModel, LanguageModel]] = []
            for role, model in served.items():
                if all(known != model for known, _ in opened):
                    key = find_engine_key(self._config, role)
                    opened.append((model, open_lazily(model, model.engine, loaded, tools, key)))
            return Engines({role: next(e for known, e in opened if known == model) for role, model in served.items()})

        async with open_effects(
            directory, self._checked.sandbox, self._checked.task.private_files, open_engines
        ) as effects:
            await work(directory, effects)
            await effects.finish()
        write_json(directory.path / "cost.json", Spent(**self._meter.total.counts()))

    def _require_problems(self, recorded: Iterable[str], known: Container[str], data: str = "data") -> None:
        """Raise DataError where the task no longer has a problem of the run's records. data: the part of its data."""
        missing = next((problem for problem in recorded if problem not in known), None)
        if missing is not None:
            raise DataError(
                f"{display(self._run)}: expected problem '{missing}' in the task's {data}, which has it no longer; "
                "restore the data"
            )

    def _get_served(self, role: str) -> ServedModel:
        """Return the model of a role; one that is not set apart is the policy's."""
        return self._checked.others.get(role) or ServedModel(self._checked.model, self._checked.engine)


def digest(content: Any) -> str:
    """Return a short digest of JSON values and records."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:8]


def _has_no_model(served: ServedModel) -> bool:
    return served.engine.simulated or served.engine.knows_truth

"""The stages before a run whose model is a student: the teacher's run, its traces, the fine-tuning run.

Each stage has its own folder under `run.stages`, named by a digest of everything that decides its result. That is the
relevant part of its configuration, its problems, the content of its input and evorun's version. So a complete stage
serves every run that needs it, a stopped one continues, and changed inputs make another stage. When several processes
need a stage at once, one works on it and the others wait.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import evorun
from evorun.errors import DataError, EvorunError, RunDirectoryError
from evorun.models.adapters import digest_adapter
from evorun.runner.requirements import require_student
from evorun.runner.settings import RunConfig, check
from evorun.runner.student import StudentConfig, in_stage, teacher_composition, tuning_composition
from evorun.runner.task_loading import load_task
from evorun.runner.work import Outcome
from evorun.runs.directory import MANIFEST, REPORT, RunDirectory, identity, load_manifest
from evorun.runs.files import open_lock
from evorun.runs.manifest import StageInRun
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal
from evorun.traces import collect, write_traces

log = logging.getLogger("evorun")

TEACHER, TRACES, STUDENT = "teacher", "traces", "student"
ADAPTER = Path("artifacts", "adapter")
MODEL = Path("artifacts", "model")
TRACES_FILE = "traces.jsonl"


Runner = Callable[[RunConfig, Path, Sequence[str], Terminal], Outcome]
"""`evorun.runner.experiment.run_experiment`."""


def with_student(config: RunConfig, directory: RunDirectory, console: Terminal, run: Runner) -> RunConfig:
    """Return the run's configuration with the student as its model, after completing the stages before it.

    A replayed run needs no stages: its answers are recorded. Raises the error of a failed stage, KeyboardInterrupt for
    an interrupted one, and RunDirectoryError when the stages now give a student other than the run's.
    """
    manifest = directory.manifest
    assert manifest is not None  # noqa: S101 - the run has begun
    if config.student is None:
        return config
    if config.engine.replays:
        return _served_as(config, _recorded_student(config.engine.recorded))
    stages = _Stages(config, config.student, manifest.command, console, run).carry_out()
    # Half a run with one student and half with another would be a result of neither.
    earlier = manifest.stages.get(STUDENT)
    if earlier is not None and earlier.digest != stages[STUDENT].digest:
        raise RunDirectoryError(
            f"{display(directory.path)}: expected the student that it began with ({_kind(config)} {earlier.digest}), "
            f"the stages now give another ({_kind(config)} {stages[STUDENT].digest}): start a new run"
        )
    taught = _served_as(config, Path(stages[STUDENT].folder))
    directory.note_student(stages, taught.engine.journal_name(taught.model))
    line = f"student {config.student.name}: ready, {_kind(config)} {stages[STUDENT].digest}; the run itself begins"
    log.info("%s", line)
    console.print(line, soft_wrap=True)
    return taught


def _kind(config: RunConfig) -> str:
    """Return what makes a model the student: an adapter, or weights of its own."""
    # A simulated one has no weights: a file stands for the adapter.
    return "adapter" if config.engine.simulated or config.raw["training"]["weights"] == "lora" else "weights"


def _served_as(config: RunConfig, student: Path) -> RunConfig:
    """Return the configuration with the student of a folder as the policy and in all roles with its model."""
    if _kind(config) == "adapter":
        model = replace(config.model, adapter=str(student / ADAPTER))
    else:
        model = replace(config.model, id=str(student / MODEL), embedded=False)
    others = {
        role: served._replace(model=model) if served.model == config.model else served
        for role, served in config.others.items()
    }
    return replace(config, model=model, others=others)


def _recorded_student(run: Path | None) -> Path:
    """Return the folder of the recorded run's student; a replay only needs to know that there was one."""
    stages = {} if run is None else load_manifest(run).stages
    return Path(stages[STUDENT].folder) if STUDENT in stages else Path()


class _Traces(NamedTuple):
    stage: StageInRun
    file: Path


class _Stages:
    """The stages of one run."""

    def __init__(
        self, config: RunConfig, student: StudentConfig, command: Sequence[str], console: Terminal, run: Runner
    ) -> None:
        self._config = config
        self._student = student
        self._command = command
        self._console = console
        self._run = run
        self._root = Path(config.run.stages)

    def carry_out(self) -> dict[str, StageInRun]:
        """Complete each stage and return them, in order."""
        teacher = self._teacher()
        traces = self._traces(Path(teacher.folder), teacher.digest)
        return {TEACHER: teacher, TRACES: traces.stage, STUDENT: self._tuned(traces)}

    def _teacher(self) -> StageInRun:
        raw = teacher_composition(self._config.raw)
        folder = self._folder(TEACHER, raw["method"]["name"], run_digest(raw, identity(raw)))
        if not is_complete(folder):  # otherwise its answers might be paid for in vain
            require_student(self._config)
        self._carry_out_run(TEACHER, folder, raw)
        made = load_manifest(folder)
        if made.simulated:
            log.warning("student %s learns from a simulated teacher, not from a real model", self._student.name)
        return StageInRun(
            str(folder), _digest_file(folder / "candidates.jsonl"), made.models["policy"], simulated=made.simulated
        )

    def _traces(self, teacher: Path, content: str) -> _Traces:
        settings = self._student.traces
        folder = self._folder(TRACES, settings.name, _digest([settings, teacher.name, content, evorun.__version__]))
        file = folder / TRACES_FILE
        with self._alone(TRACES, folder):
            if file.exists():  # written last, and atomically
                self._say(TRACES, f"reused {display(folder)}")
            else:
                self._say(TRACES, f"started in {display(folder)}")
                traces = collect([teacher], settings)
                total = traces.counts.total
                if not traces.examples:
                    raise DataError(
                        f"{display(teacher)}: expected responses to fine-tune on, none of {total.found} was kept for "
                        f"student.kind={settings.name}; try a stronger teacher or more questions"
                    )
                folder.mkdir(exist_ok=True)
                write_traces(traces, file, overwrite=True)
                self._say(TRACES, f"completed, {total.kept} of {total.found} responses were kept")
        return _Traces(StageInRun(str(folder), _digest_file(file)), file)

    def _tuned(self, traces: _Traces) -> StageInRun:
        raw = tuning_composition(self._config.raw, str(traces.file))
        # The traces count by content, not by path: equal traces in another folder give the same student.
        counted = identity(tuning_composition(self._config.raw, traces.stage.digest))
        folder = self._folder(STUDENT, self._student.name, run_digest(raw, counted))
        self._carry_out_run(STUDENT, folder, raw)
        if _kind(self._config) == "adapter":
            digest = digest_adapter(folder / ADAPTER)
        else:
            digest = _digest([_digest_file(file) for file in sorted((folder / MODEL).glob("*.safetensors"))])
        return StageInRun(str(folder), digest, load_manifest(folder).models["policy"])

    def _folder(self, stage: str, what: str, digest: str) -> Path:
        return self._root / name_stage(stage, what, self._config.task.name, digest)

    def _carry_out_run(self, stage: str, folder: Path, raw: Mapping[str, Any]) -> None:
        """Complete a stage that is a run. Raises its error, or KeyboardInterrupt when it is interrupted."""
        # Imported here: a run without stages needs no reports.
        from evorun.reports.html import write_report
        from evorun.reports.text import duration

        with self._alone(stage, folder):
            if is_complete(folder):
                self._say(stage, f"reused {display(folder)}")
            else:
                self._say(stage, f"{'continued' if (folder / MANIFEST).exists() else 'started'} in {display(folder)}")
                ended = self._run(check(raw), folder, self._command, self._console)
                if ended.status == "interrupted":
                    raise KeyboardInterrupt
                if ended.error is not None:
                    raise in_stage(stage, ended.error) if isinstance(ended.error, EvorunError) else ended.error
                self._say(stage, f"completed, {duration(load_manifest(folder).seconds)}")
            if not (folder / REPORT).exists():  # also for a stage killed just before its report
                write_report(folder)

    @contextlib.contextmanager
    def _alone(self, stage: str, folder: Path) -> Iterator[None]:
        """Lock a stage against other processes. Raises RunDirectoryError when its folder cannot be written."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            lock = os.fdopen(open_lock(self._root / f".{folder.name}.lock"))
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {display(self._root)}: {error.strerror}; choose another folder with run.stages=FOLDER"
            ) from error
        with lock:
            # The kernel drops the lock of a killed process, so no stage stays locked.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(stage, f"waiting for another process that works in {display(folder)}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _say(self, stage: str, what: str) -> None:
        line = f"student {self._student.name}, stage {stage}: {what}"
        log.info("%s", line)
        self._console.print(line, soft_wrap=True)


def name_stage(stage: str, what: str, task: str, digest: str) -> str:
    """Return the name of a stage's folder; digest: see `run_digest`."""
    return f"{stage}_{what}_{task}_{digest}"


def is_complete(folder: Path) -> bool:
    """Return whether a stage's run has ended well."""
    return (folder / MANIFEST).exists() and load_manifest(folder).status == "completed"


def run_digest(raw: Mapping[str, Any], counted: Mapping[str, Any]) -> str:
    """Return a digest of everything that decides a run's result; `counted`: the relevant part of its configuration."""
    config = check(raw)
    problems = load_task(config.task).provenance.digest
    model = {key: value for key, value in counted["model"].items() if key != "adapter"}  # a path; its content counts
    counted = {**counted, "model": [model, config.model.identity]}
    # A user's prompt files count by content; the task itself reports a missing folder.
    folder = raw["task"].get("prompts")
    files = [] if folder is None else sorted(file for file in Path(folder).glob("*.md") if file.is_file())
    prompts = [(file.name, _digest_file(file)) for file in files]
    return _digest([counted, problems, prompts, evorun.__version__])


def _digest(content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:12]


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]

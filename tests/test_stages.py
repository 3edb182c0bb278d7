"""The stages before a run of a student: carried out in order, shared, gone on with, made anew when inputs change."""

import fcntl
import io
import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from building import composed, make_config, training_config
from evorun.errors import ConfigError, DataError, EngineError, RunDirectoryError
from evorun.methods.base import DatasetLevel
from evorun.runner import registry
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import RunConfig, check
from evorun.runner.stages import run_digest, with_student
from evorun.runner.student import teacher_composition, tuning_composition
from evorun.runner.work import Outcome
from evorun.runs.directory import RunDirectory, identity, load_manifest, new_manifest
from evorun.runs.manifest import ModelInRun, Provenance, StageInRun
from evorun.runs.terminal import Terminal
from evorun.tasks import sudoku
from warm_process import no_figures

COMMAND = ["evorun", "method=laft", "task=sudoku"]


@dataclass
class TuningConfig:
    name: str = "tuning"
    data: str = ""
    epochs: float = 1.0


class Tuning(DatasetLevel):
    """Stands for method=sft: `Runs` writes what it would have left."""

    name = "tuning"
    regime = "problem_only"
    description = ""
    needs = ()
    trains = True
    Config = TuningConfig

    def __init__(self, config: TuningConfig) -> None:
        self.config = config

    learn: Any = None


Tuning.__abstractmethods__ = frozenset()


@pytest.fixture(autouse=True)
def _tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.METHODS, "tuning", f"{__name__}:Tuning")


@pytest.fixture(autouse=True, scope="module")
def _nothing_lacks() -> Iterator[None]:
    """No model is loaded here, so none needs to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evorun.runner.experiment.require_parts", lambda config: None)
        patch.setattr("evorun.runner.stages.require_student", lambda config: None)
        yield


@pytest.fixture(name="real_reports")
def _real_reports() -> None:
    """Asks for the stages' real reports, which take time to draw."""


@pytest.fixture(autouse=True)
def _reports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_reports" not in request.fixturenames:
        monkeypatch.setattr("evorun.reports.html.write_report", lambda folder: (folder / "report.html").touch())


class Runs:
    """Carries out stages: the teacher's really, the fine-tuning by writing an adapter that depends on its data."""

    def __init__(self, before_end: Callable[[Path], Outcome | None] = lambda path: None) -> None:
        self.folders: list[Path] = []
        """Of the runs that were carried out."""
        self._before_end = before_end

    def __call__(self, config: RunConfig, path: Path, command: Sequence[str], console: Terminal) -> Outcome:
        self.folders.append(path)
        if config.method.name != "tuning":
            return run_experiment(config, path, command, console)
        directory = RunDirectory(path)
        try:
            directory.begin(manifest_of(config))
            ended = self._before_end(path)
            outcome = Outcome("completed") if ended is None else ended
            if outcome.status == "completed":
                content = Path(config.raw["method"]["data"]).read_text()
                if config.raw["training"]["weights"] == "full":
                    (path / "artifacts" / "model").mkdir(parents=True)
                    (path / "artifacts" / "model" / "model.safetensors").write_text(content)
                else:
                    write_adapter(path / "artifacts" / "adapter", content)
            directory.end(outcome.status, 0.0)
        finally:
            directory.close()
        return outcome

    @property
    def stages(self) -> list[str]:
        return [folder.name.partition("_")[0] for folder in self.folders]


def write_adapter(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4}))
    (folder / "adapter_model.safetensors").write_text(content)


def manifest_of(config: RunConfig) -> Any:
    return new_manifest(
        command=COMMAND,
        seed=config.seed,
        method=config.method.name,
        task=config.task.name,
        models={"policy": ModelInRun(config.model.name, config.model.id, config.engine.name)},
        regime="problem_only",
        simulated=False,
        provenance=Provenance("generated", "", ""),
        config=config.raw,
    )


BASE = (
    *("method=lyria", "task=sudoku", "model=smollm2_135m", "engine=transformers", "method.population=3"),
    *("task.box=2", "task.empty_cells=4", "task.instances=2", "task.training_instances=3"),
)
STUDENT: dict[str, Any] = {
    "student": {
        "name": "laft",
        "kind": "laft",
        "task": {"limit": None},
        "teaching": asdict(make_config("method", "lyria", population=4, generations=1)),
        "tuning": {"name": "tuning", "epochs": 1.0},
    },
    "teacher": {"name": "qwen2_5_32b", "id": "Qwen/Qwen2.5-32B-Instruct"},
    "teacher_engine": {"name": "simulated", "skill": 0.5},
    "training": asdict(training_config(rank=4)),
}


@pytest.fixture(name="config", scope="module")
def _config() -> dict[str, Any]:
    return {**composed(*BASE), **STUDENT}


def changed(config: dict[str, Any], *path: str, to: Any) -> dict[str, Any]:
    first, *rest = path
    return {**config, first: changed(config.get(first, {}), *rest, to=to) if rest else to}


@dataclass
class Prepared:
    config: RunConfig
    manifest: Any
    said: str
    folder: Path

    @property
    def stages(self) -> dict[str, StageInRun]:
        return dict(self.manifest.stages)


def prepare(config: dict[str, Any], root: Path, runs: Runs, name: str = "run") -> Prepared:
    """Do as a run does before its own work."""
    checked = check(changed(config, "run", "stages", to=str(root / "stages")))
    directory = RunDirectory(root / name)
    console = Terminal(file=io.StringIO(), width=500)
    try:
        directory.begin(manifest_of(checked))
        taught = with_student(checked, directory, console, runs)
    finally:
        directory.close()
    return Prepared(taught, load_manifest(root / name), console.file.getvalue(), root / name)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("real_reports")
def test_three_stages_make_the_student(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs()
    with no_figures():
        done = prepare(config, tmp_path, runs)
    assert list(done.stages) == ["teacher", "traces", "student"]
    teacher, traces, student = (Path(stage.folder) for stage in done.stages.values())
    assert runs.folders == [teacher, student]
    made = load_manifest(teacher)
    assert (made.status, made.method, made.config["task"]["split"]) == ("completed", "lyria", "training")
    assert (made.models["policy"].name, made.simulated) == ("qwen2_5_32b", True)
    assert len((teacher / "predictions.jsonl").read_text().splitlines()) == 3
    assert all((folder / "report.html").stat().st_size > 1000 for folder in (teacher, student))
    assert "student laft learns from a simulated teacher" in caplog.text
    chats = [json.loads(line) for line in (traces / "traces.jsonl").read_text().splitlines()]
    assert {chat["kind"] for chat in chats} == {"laft"}
    assert load_manifest(student).config["method"]["data"] == str(traces / "traces.jsonl")
    assert done.config.model.adapter == str(student / "artifacts" / "adapter")
    assert done.config.model.name == done.manifest.models["policy"].name == "smollm2_135m-laft"
    assert done.manifest.models["policy"].id == done.config.model.identity
    for stage, folder in (("teacher", teacher), ("traces", traces), ("student", student)):
        assert f"stage {stage}: started in {folder}\n" in done.said
        assert f"stage {stage}: completed, " in done.said
    assert done.said.endswith(f"ready, adapter {done.stages['student'].digest}; the run itself begins\n")
    assert f"stage traces: completed, {len(chats)} of " in done.said
    assert [stage.simulated for stage in done.stages.values()] == [True, False, False]
    assert [stage.model and stage.model.name for stage in done.stages.values()] == ["qwen2_5_32b", None, "smollm2_135m"]
    assert done.manifest.simulated_teacher
    assert not done.manifest.simulated


@pytest.fixture(name="first", scope="module")
def _first(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A run whose stages others find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.METHODS, "tuning", f"{__name__}:Tuning")
        return prepare(config, tmp_path_factory.mktemp("first"), Runs())


@pytest.mark.nightly
def test_a_student_of_all_weights_is_the_runs_model(config: dict[str, Any], first: Prepared) -> None:
    runs = Runs()
    done = prepare(changed(config, "training", "weights", to="full"), first.folder.parent, runs, name="full")
    assert runs.stages == TUNING
    student = done.stages["student"]
    assert (done.config.model.id, done.config.model.adapter) == (f"{student.folder}/artifacts/model", None)
    assert done.manifest.models["policy"].id == done.config.model.id
    assert done.said.endswith(f"ready, weights {student.digest}; the run itself begins\n")
    other = changed(changed(config, "training", "weights", to="full"), "student", "tuning", "epochs", to=2.0)
    assert prepare(other, first.folder.parent, runs, name="same").stages["student"].digest == student.digest
    (weights,) = Path(student.folder).rglob("model.safetensors")
    weights.write_text("other weights")
    with pytest.raises(RunDirectoryError, match=f"the student that it began with .weights {student.digest}., the sta"):
        prepare(changed(config, "training", "weights", to="full"), first.folder.parent, Runs(), name="full")


def test_a_run_without_a_student_has_no_stages(config: dict[str, Any], tmp_path: Path) -> None:
    plain = {key: value for key, value in config.items() if key not in STUDENT}
    done = prepare(plain, tmp_path, Runs())
    assert (done.stages, done.config.model.adapter, done.said) == ({}, None, "")
    assert not (tmp_path / "stages").exists()


TUNING, EVERYTHING = ["student"], ["teacher", "student"]


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        (("method", "population"), 5, []),
        (("task", "limit"), 1, []),
        (("budget", "calls_per_problem"), 7, []),
        (("engine", "max_batch_size"), 3, []),
        (("model", "id"), "other/model", TUNING),
        (("student", "tuning", "epochs"), 2.0, TUNING),
        (("training", "rank"), 8, TUNING),
        (("student", "teaching", "generations"), 2, EVERYTHING),
        pytest.param(("student", "task", "limit"), 2, EVERYTHING, marks=pytest.mark.nightly),
        pytest.param(("teacher", "id"), "other/teacher", EVERYTHING, marks=pytest.mark.nightly),
        (("teacher_engine", "skill"), 0.6, EVERYTHING),
        (("task", "draw_seed"), 1, EVERYTHING),
        pytest.param(("seed",), 1, EVERYTHING, marks=pytest.mark.nightly),
    ],
)
def test_a_stage_is_reused_until_its_inputs_change(
    config: dict[str, Any], first: Prepared, path: tuple[str, ...], to: Any, expected: list[str]
) -> None:
    runs = Runs()
    other = prepare(changed(config, *path, to=to), first.folder.parent, runs, name="-".join(path))
    assert runs.stages == expected
    kept = {"teacher", "traces", "student"} - set(expected) - ({"traces"} if expected else set())
    for stage in kept:
        assert other.stages[stage] == first.stages[stage]
        assert f"stage {stage}: reused {first.stages[stage].folder}" in other.said


def test_stages_that_were_moved_are_reused(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    made = prepare(config, tmp_path / "here", Runs()).stages
    (tmp_path / "here").rename(tmp_path / "there")
    runs = Runs()
    moved = prepare(config, tmp_path / "there", runs, name="later").stages
    assert runs.stages == []
    assert [stage.digest for stage in moved.values()] == [stage.digest for stage in made.values()]


def test_another_version_makes_its_own_stages(
    config: dict[str, Any], first: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorun.__version__", "9.9")
    runs = Runs()
    prepare(config, first.folder.parent, runs, name="other_version")
    assert runs.stages == EVERYTHING


def test_other_words_in_a_users_prompts_make_another_teacher(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    own = changed(config, "task", "prompts", to=str(tmp_path / "prompts"))
    rules = Path(sudoku.__file__).with_name("prompts").joinpath("rules.md").read_text()
    stages = []
    for words in ("Be brief.", "Take care."):
        (tmp_path / "prompts" / "rules.md").write_text(f"{rules}\n{words}\n")
        stages.append(prepare(own, tmp_path, Runs(), name=words[:2]).stages)
    assert stages[0]["teacher"].folder != stages[1]["teacher"].folder


def test_other_problems_in_a_users_file_make_another_teacher(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "puzzles.txt"
    own = changed(changed(config, "task", "data", to=str(file)), "student", "task", to={"split": "evaluation"})
    stages = []
    for puzzle in ("12.4341221434.21", "123434.2214343.1"):
        file.write_text(puzzle + "\n")
        stages.append(prepare(own, tmp_path, Runs(), name=puzzle[:3].replace(".", "_") + puzzle[6]).stages)
    assert stages[0]["teacher"].folder != stages[1]["teacher"].folder


def test_other_texts_of_the_same_teacher_make_other_traces(config: dict[str, Any], tmp_path: Path) -> None:
    before = prepare(config, tmp_path, Runs(), name="before").stages
    candidates = Path(before["teacher"].folder, "candidates.jsonl")
    candidates.write_text("".join(candidates.read_text().splitlines(keepends=True)[:-1]))
    after = prepare(config, tmp_path, Runs(), name="after").stages
    assert after["teacher"].folder == before["teacher"].folder
    assert after["traces"].folder != before["traces"].folder


def test_a_stage_is_known_by_what_its_models_adapter_holds_wherever_it_lies(
    config: dict[str, Any], tmp_path: Path
) -> None:
    digests = []
    for place, content in (("here", "one"), ("here", "two"), ("there", "two")):
        shutil.rmtree(tmp_path / place, ignore_errors=True)
        write_adapter(tmp_path / place, content)
        taught = changed(config, "teacher", "adapter", to=str(tmp_path / place))
        raw = teacher_composition(changed(taught, "teacher_engine", to={"name": "vllm"}))
        digests.append(run_digest(raw, identity(raw)))
    assert digests[0] != digests[1]
    assert digests[1] == digests[2]


def test_baselines_share_the_teachers_run(config: dict[str, Any], tmp_path: Path) -> None:
    teaching = asdict(make_config("method", "best_of_n", samples=5, choose="oracle", max_tokens=4096))
    direct = changed(config, "student", "teaching", to=teaching)
    made = {}
    for kind in ("dpft_full", "dpft_top"):
        of_kind = changed(changed(direct, "student", "kind", to=kind), "student", "name", to=kind)
        made[kind] = prepare(of_kind, tmp_path, Runs(), name=kind)
    full, top = made["dpft_full"].stages, made["dpft_top"].stages
    assert full["teacher"] == top["teacher"]
    assert full["student"].digest != top["student"].digest
    counts = [len(Path(stages["traces"].folder, "traces.jsonl").read_text().splitlines()) for stages in (full, top)]
    assert counts[1] == -(-counts[0] // 5)  # the best fifth, rounded up


def test_an_interrupted_stage_interrupts_the_run_and_goes_on_later(config: dict[str, Any], tmp_path: Path) -> None:
    stopped = Runs(lambda path: Outcome("interrupted"))
    with pytest.raises(KeyboardInterrupt):
        prepare(config, tmp_path, stopped)
    assert load_manifest(tmp_path / "run").stages == {}
    runs = Runs()
    done = prepare(config, tmp_path, runs)
    assert runs.folders == stopped.folders[1:]
    assert f"stage student: continued in {runs.folders[0]}" in done.said
    assert load_manifest(runs.folders[0]).resumes == 1


def test_what_a_stage_fails_with_is_what_the_run_fails_with(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^in stage student .*student\.tuning.*: no more memory$"):
        prepare(config, tmp_path, Runs(lambda path: Outcome("failed", EngineError("no more memory"))))
    runs = Runs()
    prepare(config, tmp_path, runs)
    assert runs.stages == TUNING


def test_a_teacher_without_a_usable_answer_is_said(config: dict[str, Any], tmp_path: Path) -> None:
    silent = changed(config, "teacher_engine", to={"name": "simulated", "skill": 0.0, "malformed": 1.0})
    silent = changed(silent, "student", "parsed_only", to=True)
    with pytest.raises(DataError, match=r"none of \d+ was kept for student\.kind=laft"):
        prepare(silent, tmp_path, Runs())
    outcome = run_experiment(
        check(changed(silent, "run", "stages", to=str(tmp_path / "stages"))), tmp_path / "whole", COMMAND, Terminal()
    )
    assert outcome.status == load_manifest(tmp_path / "whole").status == "failed"
    assert "none of" in str(load_manifest(tmp_path / "whole").error)


def test_another_student_than_the_run_began_with_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    done = prepare(config, tmp_path, Runs())
    weights = Path(str(done.config.model.adapter)) / "adapter_model.safetensors"
    weights.write_text("made anew")
    with pytest.raises(RunDirectoryError, match="expected the student that it began with") as caught:
        prepare(config, tmp_path, Runs())
    assert done.stages["student"].digest in str(caught.value)
    assert load_manifest(done.folder).stages == done.stages


@pytest.mark.sample(1)
@pytest.mark.parametrize("stage", ["teacher", "traces", "student"])
def test_a_process_waits_for_another_that_works_on_the_stage(
    stage: str, config: dict[str, Any], first: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "evorun")
    folder, root = Path(first.stages[stage].folder), first.folder.parent
    said = f"stage {stage}: waiting for another process that works in"
    finished: list[Prepared] = []
    with (folder.parent / f".{folder.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = f"waits_for_{stage}"
        waiting = threading.Thread(target=lambda: finished.append(prepare(config, root, Runs(), name=run)))
        waiting.start()
        while waiting.is_alive() and said not in caplog.text:
            waiting.join(timeout=0.02)
        waiting.join(timeout=0.5)
        assert waiting.is_alive()
    waiting.join(timeout=120.0)
    assert said in finished[0].said


def test_a_replayed_run_needs_no_stage(config: dict[str, Any], first: Prepared, tmp_path: Path) -> None:
    replayed = changed(config, "engine", to={"name": "replay", "run": str(first.folder)})
    runs = Runs()
    done = prepare(replayed, tmp_path, runs)
    assert runs.folders == []
    assert done.config.model.adapter == first.config.model.adapter


def test_a_judge_of_the_same_model_is_the_student_too(config: dict[str, Any], first: Prepared) -> None:
    root = first.folder.parent
    elsewhere = changed(config, "judge_engine", to={"name": "server", "base_urls": ["http://localhost:1/v1"]})
    done = prepare(elsewhere, root, Runs(), name="elsewhere")
    assert done.config.others["judge"].model == done.config.model
    other = prepare(changed(config, "judge", to=config["teacher"]), root, Runs(), name="other_judge")
    assert other.config.others["judge"].model.adapter is None


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        (("student", "kind"), "best", "student.kind: expected one of dpft, dpft_full, dpft_top, laft, got 'best'"),
        (("student", "top"), 0.5, "student.top: kind=laft has no top share"),
        (("student", "nonsense"), 1, "student.nonsense: unknown key"),
        (("student", "teaching", "population"), 0, "student.teaching, model is teacher, engine is teacher_engine"),
        (("student", "task", "split"), "train", "task.split: expected one of evaluation, training, got 'train'"),
        (("student", "task", "sampling"), {"max_tokens": 9}, "student.task.sampling: has no effect"),
        (("student", "task", "part"), 1, "student.task.part: task=sudoku has no such setting, expected one of name, "),
        (("student", "tuning", "data"), "mine.jsonl", "student.tuning.data: expected null, got mine.jsonl"),
        (("student", "tuning", "epoch"), 2, "method.epoch: unknown key"),
        (("model", "adapter"), "somewhere", "in stage student"),
        (("run", "stages"), "", "run.stages: expected a folder"),
        (("method",), {"name": "tuning"}, "student=laft: method=tuning trains weights itself"),
        (("student",), None, "teacher: expected a student that it teaches"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    config: dict[str, Any], path: tuple[str, ...], to: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(changed(config, *path, to=to))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("task", "split"), [("sudoku", "training"), ("aime", "train"), ("arithmetic", "train")])
def test_students_learn_from_the_training_split_of_any_task(task: str, split: str) -> None:
    config = composed("student=dpft", "method=zero_shot", f"task={task}", "model=llama3_2_3b", "engine=vllm")
    stages = (teacher_composition(config), tuning_composition(config, "traces.jsonl"))
    assert [stage["task"]["split"] for stage in stages] == [split, split]
    assert check(config).task.split == {"training": "evaluation", "train": "test"}[split]  # type: ignore[attr-defined]


def test_a_task_without_a_training_split_has_no_students() -> None:
    config = composed("student=dpft", "method=zero_shot", "task=mathbench", "model=llama3_2_3b", "engine=vllm")
    with pytest.raises(ConfigError, match=r"task=mathbench has none; tasks that have one: aime, ar"):
        check(config)

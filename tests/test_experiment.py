"""A whole run in this process, with engines that are watched: when they close, and what the manifest says of them."""

import gc
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from building import composed, make_config, make_method, make_run_config, simulated_run, task_config
from evorun.errors import EngineError
from evorun.models import Completion, LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig, ServedModel
from evorun.runner import experiment, task_loading
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check
from evorun.runner.work import Outcome
from evorun.runs.terminal import Terminal
from evorun.sandbox.isolation import Probe


@dataclass
class WatchedConfig(EngineConfig):
    """An engine that always says A, or raises; notes what becomes of it."""

    name: str = "watched"
    failure: Exception | None = None
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    async def open(self, model: ModelConfig) -> LanguageModel:
        self.opened.append(model.id)
        return Watched(self, model.id)


class Watched:
    def __init__(self, config: WatchedConfig, name: str) -> None:
        self.config = config
        self.name = name

    async def complete(self, request: Request) -> Reply:
        if self.config.failure is not None:
            raise self.config.failure
        text = json.dumps({"reasoning": "It is A.", "solution": "A"})
        return Reply(completions=(Completion(text=text, finish_reason="stop", tokens=1),), prompt_tokens=1, seconds=0.0)

    async def close(self) -> None:
        self.config.closed.append(self.name)


def run(folder: Path, engine: EngineConfig, judge_engine: EngineConfig) -> tuple[Outcome, dict[str, Any]]:
    """Carry out a small run with a judge of its own; return its outcome and manifest."""
    config = make_run_config(
        make_method("duel_evolve", generations=1, initial_candidates=3, children=2, duels=2),
        task_config("mathbench", source="sample", limit=2),
        engine,
        judge_engine,
    )
    outcome = run_experiment(config, folder, ["evorun"], Terminal())
    return outcome, json.loads((folder / "manifest.json").read_text())


def test_a_task_that_loads_for_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = threading.Event()
    lines: list[str] = []

    def note(line: str, *values: object) -> None:
        lines.append(line % values)
        said.set()

    monkeypatch.setattr(task_loading._log, "warning", note)
    slow = SimpleNamespace(name="slow", load=lambda: said.wait(60))  # it ends once it was spoken of
    monkeypatch.setattr(task_loading, "_LONG_S", 0.0)
    assert task_loading.load_task(slow) is True  # type: ignore[arg-type, comparison-overlap]
    assert lines == ["loading task=slow takes more than 0 s: a download, or code of the task's own (load)"]
    quick = SimpleNamespace(name="quick", load=lambda: None)
    monkeypatch.setattr(task_loading, "_LONG_S", 600.0)
    task_loading.load_task(quick)  # type: ignore[arg-type]
    assert len(lines) == 1


def test_engines_are_closed_at_the_end(tmp_path: Path) -> None:
    engine, judge = WatchedConfig(), WatchedConfig()
    outcome, manifest = run(tmp_path, engine, judge)
    assert outcome == Outcome("completed")
    assert (engine.opened, engine.closed) == (["small"], ["small"])
    assert (judge.opened, judge.closed) == (["large"], ["large"])
    assert manifest["status"] == "completed"


def test_roles_with_an_equal_model_and_engine_share_one(tmp_path: Path) -> None:
    engine = WatchedConfig()
    method = make_method("duel_evolve", generations=1, initial_candidates=3, children=2, duels=2)
    task = task_config("mathbench", source="sample", limit=2)
    config = make_run_config(method, task, engine, engine)
    config.others["judge"] = ServedModel(replace(config.model), replace(engine))
    assert run_experiment(config, tmp_path, ["evorun"], Terminal()) == Outcome("completed")
    assert (engine.opened, engine.closed) == (["small"], ["small"])
    assert sorted(json.loads((tmp_path / "manifest.json").read_text())["models"]) == ["judge", "policy"]


@pytest.mark.parametrize("failure", [EngineError("the judge is gone"), ZeroDivisionError("a defect")])
def test_engines_are_closed_after_an_error(tmp_path: Path, failure: Exception) -> None:
    engine, judge = WatchedConfig(), WatchedConfig(failure=failure)
    outcome, manifest = run(tmp_path, engine, judge)
    assert outcome == Outcome("failed", failure)
    assert (engine.closed, judge.closed) == (["small"], ["large"])
    assert manifest["status"] == "failed"
    assert str(failure) in manifest["error"]


@pytest.mark.parametrize("policy_simulated", [True, False])
@pytest.mark.parametrize("judge_simulated", [True, False])
def test_a_run_is_simulated_when_any_of_its_engines_is(
    tmp_path: Path, policy_simulated: bool, judge_simulated: bool
) -> None:
    engines = [
        make_config("engine", "simulated") if simulated else WatchedConfig()
        for simulated in (policy_simulated, judge_simulated)
    ]
    outcome, manifest = run(tmp_path, *engines)
    assert outcome == Outcome("completed")
    assert manifest["simulated"] is (policy_simulated or judge_simulated)


@pytest.mark.nightly
def test_python_seldom_looks_for_cycles(tmp_path: Path) -> None:
    started: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        started.extend([info["generation"]] * (phase == "start"))

    gc.callbacks.append(note)
    try:
        simulated_run(tmp_path, "task.source=sample", "task.limit=4", "method.generations=4")
    finally:
        gc.callbacks.remove(note)
    calls = json.loads((tmp_path / "results.json").read_text())["cost"]["total"]["calls"]
    assert calls > 1_000
    assert len(started) < calls / 50


def test_programs_see_neither_the_run_nor_what_they_are_tested_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: list[Path] = []

    def probe(sandbox: object, private: list[Path]) -> Probe:
        hidden.extend(private)
        return Probe("fake", True, "")

    monkeypatch.setattr(experiment, "probe", probe)
    config = check(composed("method=zero_shot", "task=livecodebench", f"task.data={tmp_path / 'release'}"))
    experiment._sandbox(config, tmp_path / "run")
    assert hidden == [tmp_path / "run", tmp_path / "release"]

"""A run that trains, under system prompts that evolve: what it leaves, that it is the same after a kill, and that it
repeats without a trainer."""

import asyncio
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parity_task import (
    EMBEDDED,
    MAX_TOKENS,
    NO_TOKENIZER,
    Parity,
    ParityConfig,
    adapter_of,
    carry_out,
    cut_back,
    effects,
    finished,
    lines,
    reading_any_text,
    records,
    same_tensors,
    write_model,
)

from building import make_config
from evorun.cli import branching, invocation
from evorun.cli.export import export_runs
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError
from evorun.models import Message, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.reports import html
from evorun.runner.branches import plan_weights
from evorun.runs.directory import load_manifest
from evorun.runs.terminal import Terminal
from evorun.tasks.base import Problem
from evorun.training.process import TrainerProcess
from evorun.training.wire import Save, Train
from evorun_process import environment, evorun

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

SCRIPT = Path(__file__).parent / "parity_task.py"
STEPS, ROWS = 4, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Changes of this module's runs: their gradings are counted."""
    espl = {"name": "espl", "prompts": 2, "group": 2, "crossover_rate": 0.5, "reflection_max_tokens": 6}
    count = str(tmp_path_factory.mktemp("count") / "graded")
    # With this seed each step has an update, so that numbers of updates are those of steps.
    return {"seed": 4, "method": espl, "task": {"count": count}, "training": {"max_grad_norm": 1.0}}


@pytest.fixture(scope="module")
def hub() -> Iterator[socket.socket]:
    """The address where a trainer would look for the hub; nothing answers there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path, settings: dict[str, Any], hub: socket.socket) -> Path:
    """A run that nothing has disturbed."""
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        return finished(tmp_path_factory.mktemp("undisturbed") / "run", model, **settings)


def graded(settings: dict[str, Any]) -> int:
    """Return how often the training split's grader has been asked."""
    return len(Path(settings["task"]["count"]).read_bytes())


def test_it_reports_to_nobody(run: Path, hub: socket.socket) -> None:
    """With weights on this disk, a trainer has nothing to ask of the hub, and nothing to tell it (TRL's telemetry)."""
    assert (run / "trainer.log").exists()
    with pytest.raises(BlockingIOError):
        hub.accept()


def test_it_leaves_figures_of_each_step_and_evaluations(run: Path) -> None:
    training = lines(run / "training.jsonl")
    assert [line["step"] for line in training] == [1, 2, 3, 4]
    assert {"reward", "loss", "grad_norm", "learning_rate", "entropy"} <= training[0]["figures"].keys()
    # A step is a single one of the optimiser's here, and one of equal rewards is none.
    updates = [line["figures"] for line in training if "loss" in line["figures"]]
    assert [one["clipped_gradients"] for one in updates] == [float(one["grad_norm"] > 1.0) for one in updates]
    steps = [line for line in lines(run / "steps.jsonl") if line["problem"] == "test0"]
    assert [step["step"] for step in steps] == [0, 2, 4]
    assert all("pass_rate" in step["scores"] for step in steps)
    series = {line["name"] for line in lines(run / "metrics.jsonl")}
    assert {"reward", "loss"} <= {name.rpartition("/")[2] for name in series}
    # every second one, and the last
    assert sorted(path.name for path in (run / "checkpoints").glob("update-*")) == [
        "update-2",
        f"update-{len(updates)}",
    ]


def test_it_leaves_the_speed_of_each_update(run: Path) -> None:
    updated = [line["step"] for line in lines(run / "training.jsonl") if "loss" in line["figures"]]
    speed = {line["step"]: line["figures"] for line in lines(run / "speed.jsonl")}
    assert sorted(speed) == updated
    for figures in speed.values():
        causes = [name for name in figures if name.endswith("_seconds")]
        assert {"training_seconds", "generation_seconds"} <= set(causes)
        assert sum(figures[name] for name in causes) == pytest.approx(figures["seconds"], rel=1e-2)
        assert figures["train_tokens_per_second"] * figures["training_seconds"] > 0
        assert 0.01 < figures["trainer_memory"] < 100
        assert "mfu" not in figures  # on a CPU


def test_the_adapter_that_is_left_says_what_the_policy_said_last(run: Path, model: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapter = run / "artifacts" / "adapter"
    # else none but whoever trained it could serve it
    assert len({file.stat().st_mode for file in adapter.iterdir()}) == 1
    assert not [file for file in adapter.iterdir() if file.suffix in (".md", ".bin")]
    weights = PeftModel.from_pretrained(base, str(adapter))
    said = greedy_texts(run, 4)
    for problem in ParityConfig().load().problems:
        messages = list(asked_at_the_end(run, problem))
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        out = weights.generate(**prompt, max_new_tokens=MAX_TOKENS, do_sample=False)
        text = tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        assert text == said[problem.id]
    assert said != greedy_texts(run, 0)


@pytest.mark.parametrize("merged", [False, True], ids=["beside", "merged"])
async def test_evoruns_own_engine_serves_the_adapter(run: Path, model: Path, tmp_path: Path, *, merged: bool) -> None:
    where = {"id": str(model), "adapter": str(run / "artifacts" / "adapter")}
    if merged:
        where = {"id": str(tmp_path / "merged")}
        words = [str(run), "format=model", f"output={where['id']}"]
        assert export_runs(words, Terminal(quiet=True)) == 0
        with pytest.raises(ConfigError, match=r"^output: expected a new or empty folder with format=model, got "):
            export_runs(words, Terminal(quiet=True))
    config = ModelConfig(name="tiny", context_length=2048, **where)
    served = await make_config("engine", "transformers", device="cpu").open(config)
    try:
        for problem in ParityConfig().load().problems:
            messages = asked_at_the_end(run, problem)
            reply = await served.complete(
                Request(messages=messages, sampling=Sampling(temperature=0, max_tokens=MAX_TOKENS))
            )
            assert reply.completions[0].text == greedy_texts(run, 4)[problem.id]
    finally:
        await served.close()


def asked_at_the_end(run: Path, problem: Problem) -> tuple[Message, ...]:
    """Return the messages of a problem's last evaluation, under the best system prompt."""
    best = json.loads((run / "artifacts" / "system_prompt.json").read_text())
    return Parity().instructed_prompt(problem, best["text"]).messages


def greedy_texts(run: Path, step: int) -> dict[str, str]:
    """Return each problem's greedy completion in the evaluation after a step."""
    return {c["problem"]: c["text"] for c in lines(run / "candidates.jsonl") if c["id"] == f"{step}.0"}


@pytest.mark.nightly
def test_it_goes_on_without_a_checkpoint_that_it_can_use(
    run: Path, model: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest is newer than the journal, as if that was restored from a backup, the one before is lost, and two
    kills have left what they cut short. Then the trainer is killed, too."""
    again = shutil.copytree(run, tmp_path / "run")
    before = cut_back(again, step=4, left=3)
    for name in ("unfinished", "checkpoint-3"):
        (again / "checkpoints" / name).mkdir()
        shutil.copy(again / "checkpoints" / "update-2" / "optimizer.pt", again / "checkpoints" / name)
    shutil.rmtree(again / "checkpoints" / "update-2")
    asked = graded(settings)
    lose_the_trainer(again, model, settings, monkeypatch)
    finished(again, model, **settings)
    assert_the_same(again, run)
    after = effects(again)
    assert {key: after[key] for key in before} == before  # with its seconds: nothing was asked again
    assert after.keys() == effects(run).keys()
    assert graded(settings) == asked + ROWS
    assert "made again" not in (again / "evorun.log").read_text()


def test_a_finished_run_needs_no_trainer_to_finish_again(run: Path, model: Path, settings: dict[str, Any]) -> None:
    log, before, asked = (run / "trainer.log").read_bytes(), records(run), graded(settings)
    finished(run, model, **settings)
    assert (run / "trainer.log").read_bytes() == log
    assert records(run) == before
    assert graded(settings) == asked


WITHOUT_TORCH = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers", "trl", "peft", "accelerate"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import runpy
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def repeat_without_torch(run: Path, model: Path, settings: dict[str, Any], folder: Path) -> None:
    """Replay a run in a process that cannot import what trains."""
    overrides = {"model": str(model), **settings, "engine": {"name": "replay", "run": str(run)}}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(folder), json.dumps(overrides)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_repeats_without_a_trainer(run: Path, model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    again = finished(tmp_path / "run", model, **settings, engine={"name": "replay", "run": str(run)})
    assert records(again) == records(run)
    assert not (again / "trainer.log").exists()


@pytest.mark.nightly  # starts an interpreter
def test_it_repeats_without_torch(run: Path, model: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    repeat_without_torch(run, model, settings, tmp_path / "run")
    assert records(tmp_path / "run") == records(run)
    assert not (tmp_path / "run" / "trainer.log").exists()


@pytest.mark.nightly
def test_a_killed_run_ends_as_if_nothing_had_happened(
    run: Path, model: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in a reflection beside the first update; then the trainer alone is, as the system does where memory runs
    out. A run that is killed while a checkpoint is written is in test_mpo_runs.py."""
    again = tmp_path / "run"
    killed(again, model, settings, "reflection")
    lose_the_trainer(again, model, settings, monkeypatch)
    finished(again, model, **settings)
    assert_the_same(again, run)
    assert "made again" not in (again / "evorun.log").read_text()


def killed(run: Path, model: Path, settings: dict[str, Any], moment: str) -> set[str]:
    """Begin a run, or go on with it, in a process that dies at a moment; return what is left of checkpoints."""
    overrides = json.dumps({"model": str(model), **settings, "kill": moment})
    died = evorun(str(run), overrides, cwd=run.parent, program=str(SCRIPT))
    assert died.returncode == -signal.SIGKILL, (moment, died.stderr)
    return {path.name for path in (run / "checkpoints").iterdir()} - {"trainer.json"}


def lose_the_trainer(run: Path, model: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on with a run, whose trainer is killed in its next update: the run fails, and says why."""
    ask = TrainerProcess.ask

    async def dying(self: TrainerProcess, command: Any) -> Any:
        asked = asyncio.ensure_future(ask(self, command))
        if isinstance(command, Train):
            await asyncio.sleep(0)  # it is on its way to the trainer
            os.kill(*self.pids(), signal.SIGKILL)
        return await asked

    with monkeypatch.context() as patch:
        patch.setattr(TrainerProcess, "ask", dying)
        outcome = carry_out(run, model, **settings)
    assert outcome.status == "failed"
    said = str(outcome.error)
    assert "the trainer process was killed by signal 9 (SIGKILL)" in said
    assert "as the system does when memory runs out" in said
    assert "its messages are in trainer.log" in said
    assert len(said.splitlines()) == 1


def assert_the_same(run: Path, reference: Path) -> None:
    assert records(run) == records(reference)
    assert same_tensors(adapter_of(run / "artifacts" / "adapter"), adapter_of(reference / "artifacts" / "adapter"))
    assert {key: result for key, (result, _) in effects(run).items() if "|update|" in key} == {
        key: result for key, (result, _) in effects(reference).items() if "|update|" in key
    }


Asked = list[int]
"""The numbers of the updates that trainers were asked for; 0 for a checkpoint."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(html, "write_report", lambda run: None)
    numbers: Asked = []
    ask = TrainerProcess.ask

    async def note(self: TrainerProcess, command: Any) -> Any:
        if isinstance(command, Train | Save):
            numbers.append(command.number if isinstance(command, Train) else 0)
        return await ask(self, command)

    monkeypatch.setattr(TrainerProcess, "ask", note)
    return numbers


def branch(verb: Callable[..., Any], *words: object) -> tuple[Any, str]:
    printed = io.StringIO()
    invocation.begin(["evorun"])
    with reading_any_text():
        code = verb([str(word) for word in words], Terminal(file=printed, width=200))
    return code, printed.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# By day test_training_branches.py extends runs, test_branching.py one that was killed, and trainers are killed below.
@pytest.mark.nightly
def test_an_extension_whose_trainer_is_killed_ends_as_the_longer_run(
    run: Path,
    model: Path,
    settings: dict[str, Any],
    asked: Asked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    longer = tmp_path / "longer"
    two_steps = {**settings, "method": {**settings["method"], "steps": 2}}
    short = finished(tmp_path / "short", model, **two_steps)
    asked.clear()
    with monkeypatch.context() as patch:
        noted = TrainerProcess.ask

        async def dying(self: TrainerProcess, command: Any) -> Any:
            if isinstance(command, Train) and command.number == 4:
                os.kill(*self.pids(), signal.SIGKILL)
            return await noted(self, command)

        patch.setattr(TrainerProcess, "ask", dying)
        code, _ = branch(branching.extend, short, "method.steps=4", f"output={longer}")
    assert code == 1
    with reading_any_text():
        assert run_verb("resume", [str(longer)]) == 0
    assert asked == [3, 4, 3, 4, 0]
    assert_the_same(longer, run)
    assert tree(longer / "artifacts") == tree(run / "artifacts")  # with the adapter of each evaluation


@pytest.mark.nightly  # test_training_branches.py forks simulated runs
def test_a_fork_trains_on_from_the_checkpoint_with_its_own_settings(run: Path, asked: Asked, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    code, said = branch(branching.fork, run, "--at", "step=3", "training.learning_rate=0.02", f"output={fork}")
    assert code == 0
    assert asked == [3, 4, 0]
    assert "and 2 training steps, shared" in said
    rates = [line["figures"]["learning_rate"] for line in lines(fork / "training.jsonl")]
    assert rates == [0.01, 0.01, 0.02, 0.02]
    for name in ("training", "rollouts", "steps"):
        shared, own = [[line for line in lines(of / f"{name}.jsonl") if line["step"] < 3] for of in (run, fork)]
        assert shared == own != []
    assert not same_tensors(adapter_of(fork / "artifacts" / "adapter"), adapter_of(run / "artifacts" / "adapter"))
    origin = load_manifest(fork).origin
    assert origin is not None
    assert (origin.updates, origin.first_checkpoint) == (2, 2)


def test_a_fork_whose_weights_are_gone(run: Path) -> None:
    """Updates may be made again with the settings that they had, not with others."""
    manifest = load_manifest(run)
    kept = {**manifest.config, "method": {**manifest.config["method"], "eval_samples": 2}}
    changed = {**manifest.config, "training": {**manifest.config["training"], "learning_rate": 0.02}}
    assert plan_weights(run, manifest, kept, 2) == (0, 1, 0)
    assert plan_weights(run, manifest, changed, 1) == (0, 0, 0)
    assert plan_weights(run, manifest, changed, 3) == (2, 0, 2)
    with pytest.raises(ConfigError, match=r"weights before step 2, .* another training.learning_rate.*step=1 or 3;"):
        plan_weights(run, manifest, changed, 2)

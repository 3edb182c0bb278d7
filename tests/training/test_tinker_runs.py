"""Runs that train on a server that speaks Tinker's API, with Tinker's own package: what they leave, that a kill and a
lost connection change nothing, and that they repeat without the server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parity_task import (
    EMBEDDED,
    MAX_TOKENS,
    NO_TOKENIZER,
    ParityConfig,
    adapter_of,
    carry_out,
    effects,
    finished,
    lines,
    records,
    same_tensors,
    write_model,
)

from building import composed
from evorun.models.requirements import find_missing_packages
from evorun.training.checkpoints import Checkpoints
from evorun_process import environment, evorun

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.nightly,  # by day, test_tinker_fine_tuning.py has a run, test_tinker_trainer.py policy gradients
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
    pytest.mark.skipif(bool(find_missing_packages(["tinker"])), reason="needs the package tinker"),
]

SCRIPT = Path(__file__).parent / "parity_task.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Any]:
    import tinker_server

    with pytest.MonkeyPatch.context() as environ, tinker_server.serving(model) as serving:
        environ.setenv("TINKER_API_KEY", tinker_server.KEY)
        environ.setenv("EVORUN_PASS_ENV", "TINKER_API_KEY")
        yield serving


@pytest.fixture
def tinker(server: Any) -> Iterator[Any]:
    """The server, without the troubles of the test before."""
    yield server
    server.lost.clear()
    server.until.clear()
    server.refused.clear()


@pytest.fixture(scope="module")
def settings(server: Any) -> dict[str, Any]:
    training = {**composed("method=espl", "task=arithmetic", "training=tinker", "engine=tinker")["training"]}
    training |= {"rank": 4, "learning_rate": 0.01, "save_every": 2, "target_modules": ["all-linear"]}
    training |= {"base_url": server.url, "hang_timeout": 60.0}
    espl = {"name": "espl", "prompts": 2, "group": 2, "crossover_rate": 0.5, "reflection_max_tokens": 6}
    return {"seed": 1, "method": espl, "training": training, "engine": {"name": "tinker"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path, settings: dict[str, Any]) -> Path:
    """An E-SPL run that nothing has disturbed."""
    return finished(tmp_path_factory.mktemp("undisturbed") / "run", model, **settings)


def test_it_leaves_figures_and_addresses(run: Path, server: Any) -> None:
    training = lines(run / "training.jsonl")
    updates = [line["figures"] for line in training if "loss" in line["figures"]]
    assert len(updates) >= 3
    assert {"reward", "loss", "grad_norm", "learning_rate", "clip_ratio", "sampler_kl"} <= updates[0].keys()
    assert all(figures["sampler_kl"] < 1e-6 for figures in updates)
    [*_, newest] = sorted((run / "checkpoints").glob("update-*"))
    remote = json.loads((newest / "tinker.json").read_text())
    assert remote["state"] in server.states
    assert remote["optimiser_steps"] == len(updates)
    assert set(remote["snapshots"].values()) <= server.snapshots.keys()
    checkpoints = Checkpoints(run / "checkpoints", keep=2)
    assert checkpoints.oldest_version(len(updates)) == len(updates) - 1  # for calls beside the next update
    assert "tml-" not in "".join(file.read_text(errors="replace") for file in run.rglob("*") if file.is_file())


def test_the_adapter_that_is_downloaded_says_what_the_policy_said_last(run: Path, model: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = run / "artifacts" / "adapter"
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    weights = PeftModel.from_pretrained(base, str(folder))
    best = json.loads((run / "artifacts" / "system_prompt.json").read_text())["text"]
    said = {c["problem"]: c["text"] for c in lines(run / "candidates.jsonl") if c["id"] == "4.0"}
    for problem in ParityConfig().load().problems:
        messages = list(ParityConfig.task_class().instructed_prompt(problem, best).messages)
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        out = weights.generate(**prompt, max_new_tokens=MAX_TOKENS, do_sample=False)
        assert tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True) == said[problem.id]


def assert_the_same(run: Path, reference: Path) -> None:
    assert records(run) == records(reference)
    assert same_tensors(adapter_of(run / "artifacts" / "adapter"), adapter_of(reference / "artifacts" / "adapter"))
    updates = [{key: one for key, (one, _) in effects(of).items() if "|update|" in key} for of in (run, reference)]
    assert updates[0] == updates[1] != {}
    assert "repeated, gives" not in (run / "evorun.log").read_text()


def test_it_repeats_without_server_package_or_key(
    run: Path, model: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    overrides = {"model": str(model), **settings, "engine": {"name": "replay", "run": str(run)}}
    program = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("tinker", "torch", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import runpy
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
    words = [sys.executable, "-c", program, str(tmp_path / "run"), json.dumps(overrides)]
    without_key = {name: value for name, value in environment().items() if name != "TINKER_API_KEY"}
    done = subprocess.run(words, capture_output=True, text=True, env=without_key, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(tmp_path / "run") == records(run)


def test_a_kill_and_lost_answers_change_nothing(
    run: Path, model: Path, settings: dict[str, Any], tinker: Any, tmp_path: Path
) -> None:
    """Killed in a reflection beside the first update. Then answers are lost after the server has done what was asked:
    Tinker's package asks again, under the same number, and the server must not do it twice."""
    again = tmp_path / "run"
    overrides = json.dumps({"model": str(model), **settings, "kill": "reflection"})
    died = evorun(str(again), overrides, cwd=tmp_path, program=str(SCRIPT))
    assert died.returncode == -signal.SIGKILL, died.stderr
    tinker.lost |= {"optim_step", "forward_backward", "save_weights_for_sampler", "asample", "retrieve_future"}
    finished(again, model, **settings)
    assert not tinker.lost
    assert_the_same(again, run)


def test_a_server_that_falls_silent_ends_the_run_in_a_line(
    run: Path, model: Path, settings: dict[str, Any], tinker: Any, tmp_path: Path
) -> None:
    """It does so at the third update, after a checkpoint."""
    again = tmp_path / "run"
    impatient = {**settings, "training": {**settings["training"], "hang_timeout": 3.0}}
    steps = len(tinker.steps)
    tinker.until["optim_step"] = steps + 2
    outcome = carry_out(again, model, **impatient)
    assert outcome.status == "failed"
    assert str(outcome.error) == (
        "Tinker's API: train 3: the server has not answered in time; `evorun resume RUN_DIR` goes on from the last "
        "checkpoint"
    )
    tinker.until.clear()
    asked = tinker.seen.count("load_weights")
    finished(again, model, **impatient)
    assert tinker.seen.count("load_weights") == asked + 1
    assert records(again) == records(run)
    assert len(tinker.steps) == steps + 4  # of which two before the silence: nothing was trained twice


def test_rollouts_beside_updates(model: Path, settings: dict[str, Any], tinker: Any, tmp_path: Path) -> None:
    """GRPO, whose rollouts lack one update."""
    training = {**settings["training"], "max_lag": 1}
    changes = {**settings, "method": {"name": "grpo", "steps": 3}, "training": training}
    done = finished(tmp_path / "run", model, **changes)
    figures = [line["figures"] for line in lines(done / "training.jsonl") if "loss" in line["figures"]]
    assert figures[0]["sampler_kl"] < 1e-6 < figures[-1]["sampler_kl"]

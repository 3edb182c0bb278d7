"""Failures in training: one line tells the reason, nothing is lost, and the run continues where that makes sense."""

import asyncio
import json
import os
import resource
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from parity_task import (
    EMBEDDED,
    NO_TOKENIZER,
    adapter_of,
    carry_out,
    configured,
    effects,
    finished,
    same_tensors,
    write_model,
)

from building import composed, make_config, make_job, policy_gradient, training_config
from evorun.errors import ConfigError, JournalError, TrainingError
from evorun.models import Message, Reply, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.runner.settings import check
from evorun.runner.work import Outcome
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL
from evorun.runs.replay import RecordedRun
from evorun.training import process, worker
from evorun.training.policy import Policy
from evorun.training.process import TrainerProcess
from evorun.training.wire import Done, Evaluate, Export, Figures, Generate, Replies, Row, Save, Train

needs_tokenizer = pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER)
SHORT = {"method": {"steps": 2, "eval_every": 1, "eval_samples": 0}, "training": {"save_every": 1}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def one_line(outcome: Outcome) -> str:
    """Return why a run has failed, as the user reads it."""
    assert outcome.status == "failed"
    text = str(outcome.error)
    assert len(text.splitlines()) == 1
    assert len(text) < 500
    return text


def unread(folder: Path) -> Path:
    """Return a folder that looks like a model's, for runs that end before it is loaded."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return folder


def said(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def rows(*advantages: float) -> tuple[Row, ...]:
    def row(tokens: tuple[int, ...], advantage: float) -> Row:
        chances = (-7.6,) * len(tokens)  # of some 2,000 tokens
        return Row(
            prompt=(5, 300, 17),
            tokens=tokens,
            learned=(True,) * len(tokens),
            reward=advantage,
            advantage=advantage,
            logprobs=chances,
        )

    return tuple(row((i + 300, 7, 9), own) for i, own in enumerate(advantages))


class TestBeforeAnythingIsLoaded:
    def test_training_settings_for_a_method_that_does_not_train(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^training: has no effect, method=zero_shot trains no weights"):
            check(composed("method=zero_shot", "engine=transformers", "+training=lora"))

    def test_a_warmup_that_would_have_no_effect(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^training\.warmup_steps: expected 0 with training\.schedule=constant"):
            configured(tmp_path, training={"warmup_steps": 5})
        assert training_config(warmup_steps=5, schedule="linear").warmup_steps == 5

    @pytest.mark.parametrize(("visible", "seen"), [(None, "0"), ("", ""), ("3,1", "3"), ("GPU-5c", "GPU-5c")])
    def test_one_process_sees_one_gpu(self, visible: str | None, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")  # also where it is unset: so it is restored
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        worker._see_one_gpu()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen

    async def test_a_trainer_sees_its_gpus_alone_and_is_ended_at_once_while_it_loads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loading, log = tmp_path / "loading.py", tmp_path / "log"
        loading.write_text(
            "import json, os, socket, sys, time\nlink = socket.socket(socket.AF_UNIX)\n"
            "link.connect(json.load(open(sys.argv[1]))['socket'])\n"
            "print(os.environ['CUDA_VISIBLE_DEVICES'], os.getsid(0) == os.getpid(), flush=True)\ntime.sleep(300)\n"
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5c")
        monkeypatch.setattr(process, "command_line", lambda job, file: [sys.executable, str(loading), str(file)])
        monkeypatch.setattr(process, "ENDING_S", 300)  # for a trainer that could be asked to end
        starting = asyncio.create_task(
            TrainerProcess.start(
                make_job(tmp_path, tmp_path, training_config(rank=4, devices=[1]), policy_gradient()), log
            )
        )
        async with asyncio.timeout(120) as limit:
            while not (log.exists() and log.read_text()):  # noqa: ASYNC110 - a process says so in a file
                await asyncio.sleep(0.01)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert not limit.expired()  # whose cancellation would look like the run's
        assert log.read_text() == "GPU-5c True\n"  # in a session of its own: Ctrl-C is the run's

    @pytest.mark.parametrize("package", ["trl", "peft", "datasets"])
    def test_a_package_is_missing(self, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def lacking(name: str) -> ModuleSpec | None:
            return None if name == package else find_spec(name)

        monkeypatch.setattr("evorun.models.requirements.find_spec", lacking)
        with pytest.raises(TrainingError) as caught:
            carry_out(tmp_path / "run", unread(tmp_path / "model"))
        expected = f"training needs the package {package}, which is not installed: pip install 'evorun[train]'"
        assert str(caught.value) == expected
        assert not (tmp_path / "run").exists()


class TestInARun:
    def test_a_reward_that_raises(self, tmp_path: Path) -> None:
        trouble = tmp_path / "trouble"
        trouble.touch()
        overrides = {**SHORT, "task": {"trouble": str(trouble)}, "engine": composed("engine=simulated")["engine"]}
        assert one_line(carry_out(tmp_path / "run", tmp_path, **overrides)) == "the grader has no opinion"
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
        assert manifest["error"] == "ValueError: the grader has no opinion"
        before = effects(tmp_path / "run")
        assert sum("|rollout|" in key for key in before) == 8
        trouble.unlink()
        finished(tmp_path / "run", tmp_path, **overrides)
        after = effects(tmp_path / "run")
        assert {key: after[key] for key in before} == before

    @pytest.mark.embedded
    @needs_tokenizer
    def test_a_target_that_the_model_does_not_have(self, model: Path, tmp_path: Path) -> None:
        line = one_line(carry_out(tmp_path / "run", model, training={"target_modules": ["q_proj", "query"]}))
        assert line.startswith("training.target_modules: the model has no linear layer 'query'")
        assert "q_proj" in line


@pytest.mark.nightly
@pytest.mark.embedded
@pytest.mark.slow
@needs_tokenizer
class TestATrainer:
    async def test_it_serves_its_versions_and_a_checkpoint_keeps_two_but_not_where_the_disk_cuts_it_short(
        self, model: Path, tmp_path: Path
    ) -> None:
        base = greedy_of_transformers(model, said("Tell me more."))
        training = training_config(rank=4, learning_rate=0.05)
        trainer = await TrainerProcess.start(make_job(model, tmp_path, training, policy_gradient()), tmp_path / "log")
        try:
            assert await greedy(trainer, 0) == await greedy(trainer, None) == base
            await trainer.ask(Export(str(tmp_path / "of-0"), "base", 0))
            figures = await trainer.ask(Train(number=1, rows=rows(0.5, -0.5, 0.25, -0.25)))
            assert isinstance(figures, Figures)
            assert figures.figures["grad_norm"] > 0
            assert await greedy(trainer, 0) == await greedy(trainer, None) == base  # its reference is the base model
            await trainer.ask(Train(number=2, rows=rows(0.5, -0.5, 0.25, -0.25)))
            assert await trainer.ask(Save(str(tmp_path / "whole"))) == Done()
            for version in (1, 2):
                await trainer.ask(Export(str(tmp_path / f"of-{version}"), "base", version))
            said_by = {version: await greedy(trainer, version) for version in (2, 1, None)}
            assert said_by[None] == base
            await trainer.ask(Train(number=3, rows=rows(0.5, -0.5, 0.25, -0.25)))
            assert await greedy(trainer, 2) == said_by[2]
            process = psutil.Process(*trainer.pids())
            process.rlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # a file of the checkpoint is larger
            with pytest.raises(TrainingError, match="File too large") as raised:
                await trainer.ask(Save(str(tmp_path / "cut")))
            assert len(str(raised.value).splitlines()) == 1
        finally:
            await trainer.close()
        assert not (tmp_path / "cut").exists()
        job = make_job(model, tmp_path, training, policy_gradient(), checkpoint=str(tmp_path / "whole"), updates=2)
        resumed = await TrainerProcess.start(job, tmp_path / "log")
        try:
            assert {version: await greedy(resumed, version) for version in (1, 2, None)} == said_by
        finally:
            await resumed.close()
        assert len(set(said_by.values())) == 3
        untrained = adapter_of(tmp_path / "of-0")
        assert not any(value.any() for name, value in untrained.items() if "_B" in name)
        assert same_tensors(adapter_of(tmp_path / "of-2"), adapter_of(tmp_path / "whole"))
        assert not same_tensors(adapter_of(tmp_path / "of-1"), adapter_of(tmp_path / "whole"))


async def test_a_replayed_run_trains_nothing(tmp_path: Path) -> None:
    nothing = tmp_path / "recorded"
    nothing.mkdir()
    Journal(nothing / JOURNAL).close()
    journal = Journal(tmp_path / JOURNAL)
    policy = Policy(
        model=ModelConfig(name="m", id="m"),
        engine=make_config("engine", "transformers"),
        training=training_config(),
        objective=policy_gradient(),
        seed=0,
        run=tmp_path,
        journal=journal,
        past=RecordedRun(nothing),
    )
    with pytest.raises(JournalError, match=r"recorded.* holds no .*update"):
        await policy.update(1, rows(0.5, -0.5))
    await policy.close()
    journal.close()
    assert not (tmp_path / "trainer.log").exists()


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_held_out_loss_that_is_no_number_stops_the_run(loss: float) -> None:
    pytest.importorskip("trl")
    from evorun.training.serving import Serving

    serving = Serving(None, None, None)  # type: ignore[arg-type]
    state = SimpleNamespace(global_step=7)
    serving.bind(SimpleNamespace(evaluate=lambda: {"held_out_loss": loss}, state=state, policy=None))
    with pytest.raises(TrainingError, match=r"optimiser step 7: .* held_out_loss (nan|inf); lower training.learning_r"):
        serving._carry_out(Evaluate())


async def greedy(trainer: TrainerProcess, version: int | None) -> tuple[int, ...] | None:
    request = Request(messages=said("Tell me more."), sampling=Sampling(temperature=0, max_tokens=8), token_ids=True)
    answer = await trainer.ask(Generate(requests=(request,), version=version))
    assert isinstance(answer, Replies)
    reply: Reply = answer.replies[0]
    return reply.completions[0].token_ids


def greedy_of_transformers(model: Path, messages: tuple[Message, ...]) -> tuple[int, ...]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    prompt = AutoTokenizer.from_pretrained(model).apply_chat_template(
        list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = weights.generate(**prompt, max_new_tokens=8, do_sample=False)
    return tuple(out[0, prompt["input_ids"].shape[1] :].tolist())

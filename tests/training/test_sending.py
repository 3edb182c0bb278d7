"""Weights on their way from a trainer's memory to an engine: their names and values, and the order of calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from safetensors.torch import load_file
from steps import random_rows
from test_policy import ASKED, answer

from building import make_config, policy_gradient, training_config
from evorun.errors import EngineError, TrainingError
from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import LanguageModel, Reply, Request, WeightReceiver
from evorun.models.config import ModelConfig
from evorun.models.vllm.cuda_handles import Handle, expand, shorten
from evorun.models.vllm.sleep import SleepMode
from evorun.runs.directory import RunDirectory
from evorun.training.policy import Policy
from evorun.training.sending import PolicyWeights
from shared_memory_transfer import GPU, make_arguments, read, sending_trainers
from tiny_llama import write_tiny_llama

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
STEPS = ("start_weight_update", "update_weights_by_ipc", "finish_weight_update")


def make_model(kind: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    sparse = {"moe_intermediate_size": 12, "num_experts": 3, "num_experts_per_tok": 2, "head_dim": 8}
    more = {"qwen2": {"tie_word_embeddings": True}, "qwen3_moe": {**sparse, "tie_word_embeddings": False}}[kind]
    config = AutoConfig.for_model(kind, num_attention_heads=2, num_key_value_heads=1, **sizes, **more)
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3_moe"])
def test_what_is_sent_is_what_transformers_writes_into_a_checkpoint(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    model.save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    for dtype in (None, torch.bfloat16):
        weights = PolicyWeights(model, dtype, CPU)
        sent = list(weights)
        assert sorted(name for name, _ in sent) == sorted(expected)
        for name, tensor in sent:
            assert tensor.is_contiguous()
            assert torch.equal(tensor, expected[name].to(dtype or torch.float32)), name
        assert [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in sent] == weights.metadata()
    layers = [name.split(".")[2] for name, _ in sent if name.startswith("model.layers.")]
    assert layers == sorted(layers)  # vLLM holds what it has of an incomplete layer


def test_a_handle_keeps_all_that_another_process_needs() -> None:
    arguments = make_arguments(b"\x00memory", 4096)
    handle = shorten(arguments)
    assert all(isinstance(value, int | bytes) for value in handle)
    assert expand(Handle(*list(handle))) == arguments


class Engine:
    """An engine on the trainer's GPU that receives weights; it answers with their update, and may drop them asleep."""

    name = "m"
    processes = 1

    def __init__(self, level: int = 1) -> None:
        self.number = 1
        self.received = False
        self.steps: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.holds = "m"
        self.broken = False
        self.mode = SleepMode(self, self, level)

    async def complete(self, request: Request) -> Reply:
        async with self.mode.awake():
            return answer(self.holds)

    async def receive_weights(self, name: str, send: Callable[[WeightReceiver], Awaitable[None]]) -> LanguageModel:
        async with self.mode.awake(replaces=True):
            self.weights, self.received, self.holds = {}, True, "a part"
            await send(self)
            self.holds = name
        return ModelUnderAdapter(name, self.complete)

    async def call(self, step: str, payload: Mapping[str, Any]) -> None:
        self.steps.append(step)
        if step == "update_weights_by_ipc":
            if self.broken:
                raise EngineError("vLLM cannot take weights")
            [(gpu, handle)] = payload["handles"].items()
            assert gpu == GPU
            self.weights |= dict(read(payload["update"], expand(Handle(*handle))))

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        raise AssertionError

    def asleep(self) -> Any:
        return self.mode.asleep()

    def take_wakings(self) -> Any:
        return self.mode.take_wakings()

    async def sleep(self, level: int) -> None:
        if level == 2:
            self.holds = "nothing"

    async def wake_up(self, tags: list[str] | None = None) -> None:
        pass

    async def probe(self) -> list[float]:
        return [0.0]

    async def reload_model(self) -> None:
        raise AssertionError("read from disk")

    reload_adapters = reload_model

    async def close(self) -> None:
        pass


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Iterator[RunDirectory]:
    run = RunDirectory(tmp_path / "run")
    with sending_trainers():
        yield run
    run.close()


def make_policy(run: RunDirectory) -> Policy:
    folder = run.path.parent / "model"
    if not folder.exists():
        write_tiny_llama(folder)
    return Policy(
        model=ModelConfig(name="m", id=str(folder), context_length=256),
        engine=make_config("engine", "transformers", device="cpu"),
        training=training_config(weights="full", learning_rate=0.01, save_every=1),
        objective=policy_gradient(steps=9),
        seed=0,
        run=run.path,
        journal=run.journal,
    )


async def told(model: LanguageModel) -> str:
    return (await model.complete(ASKED)).completions[0].text


def assert_equal(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    expected = load_file(folder / "model.safetensors")
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.nightly
async def test_an_engine_gets_each_updates_weights_and_all_of_them_again_after_a_kill(run: RunDirectory) -> None:
    engine = Engine(level=2)
    policy = make_policy(run)
    policy.share_gpu_with(engine)
    model = policy.replace_weights_of(engine, "ipc")
    name = policy._model.id
    assert await told(model.at(0)) == "m"
    await policy.update(1, random_rows(4))
    assert await told(model.at(1)) == f"{name}@1"
    buffers = engine.steps.count(STEPS[1])
    assert buffers > 1
    push = [STEPS[0], *[STEPS[1]] * buffers, STEPS[2]]
    assert engine.steps == ["init_weight_transfer_engine", *push]
    first = engine.weights
    assert_equal(first, await policy.export(1))

    await policy.update(2, random_rows(4))
    # A reflection still asks for the weights before, which the engine dropped as it fell asleep: not read from disk.
    assert await asyncio.gather(told(model.at(1)), told(model.at(1))) == [f"{name}@1"] * 2
    assert all(torch.equal(engine.weights[key], tensor) for key, tensor in first.items())
    assert await told(model.at(2)) == f"{name}@2"
    assert engine.steps == ["init_weight_transfer_engine", *push * 3]
    assert_equal(last := engine.weights, await policy.export())
    assert not torch.equal(last["model.norm.weight"], first["model.norm.weight"])
    assert not list((run.path / "checkpoints").glob("rollouts-*"))
    await policy.close()

    # Another process goes on from the checkpoint, with an engine that has the untrained weights.
    policy, engine = make_policy(run), Engine()
    model = policy.replace_weights_of(engine, "ipc")
    for step in (1, 2):
        await policy.update(step, random_rows(4))
    assert await told(model.at(2)) == f"{name}@2"
    assert engine.steps == ["init_weight_transfer_engine", *push]
    assert engine.weights.keys() == last.keys()
    assert all(torch.equal(engine.weights[key], tensor) for key, tensor in last.items())

    # A new engine meets the trainer anew; one that fails ends the trainer, which would wait for it.
    engine.number += 1
    engine.broken = True
    await policy.update(3, random_rows(4))
    with pytest.raises(EngineError, match="vLLM cannot take weights"):
        await told(model.at(3))
    assert engine.steps[-3:] == ["init_weight_transfer_engine", *push[:2]]
    with pytest.raises(TrainingError, match="the trainer process has ended"):
        await policy.update(4, random_rows(4))
    await policy.close()

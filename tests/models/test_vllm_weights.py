"""Weights of a vLLM engine that are replaced, dropped and damaged, on vLLM's CPU build; the oracle is transformers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from building import make_config
from evorun.errors import EngineError
from evorun.models.base import Completion, LanguageModel
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmModel
from evorun.models.vllm.sleep import SleepMode
from evorun.testing.engines import ask
from lora_adapters import RANK, write_adapters
from tiny_llama import write_short_tokenizer

needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]


def write_model(folder: Path, *, seed: int, tied: bool = True, hidden: int = 64) -> Path:
    """Write a random Llama with heads of 32, the least that vLLM's CPU build takes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = write_short_tokenizer(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=hidden // 32,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        initializer_range=0.3,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The engine's model, and what training would make of it."""
    root = tmp_path_factory.mktemp("models")
    return [write_model(root / f"seed{seed}", seed=seed) for seed in range(2)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(folders: list[Path]) -> AsyncIterator[VllmModel]:
    config = make_config("engine", "vllm", max_model_len=1024, max_num_seqs=8, cpu_kv_cache_gib=0.25, lora_rank=RANK)
    model = await config.open(ModelConfig(name="random", id=str(folders[0]), context_length=1024, dtype="float32"))
    assert isinstance(model, VllmModel)
    yield model
    await model.close()


async def sample(model: LanguageModel) -> Completion:
    request = ask("Name a colour.", max_tokens=12, temperature=1.0, token_ids=True, logprobs=True)
    reply = await model.complete(request)
    assert reply.completions[0].finish_reason != "rejected", reply.error
    return reply.completions[0]


def distance(folder: Path, completion: Completion, adapter: Path | None = None) -> float:
    """Return the largest difference of a completion's log-probabilities from those of transformers, in nats."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter))
    prompt = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        list(ask("Name a colour.").messages), add_generation_prompt=True, return_dict=True
    )["input_ids"]
    ids = torch.tensor([[*prompt, *completion.token_ids]])
    with torch.no_grad():
        scores = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    expected = scores.gather(1, ids[0, len(prompt) :, None])[:, 0]
    return float((expected - torch.tensor(completion.logprobs)).abs().max())


class Drowsy:
    """An engine of the CPU build, which cannot sleep, that loses its weights as a GPU's engine does at level 2.

    damages: waking loses them at level 1, too. Everything else is the engine's own.
    """

    def __init__(self, engine: Any, *, damages: bool = False) -> None:
        self._engine = engine
        self._damages = damages
        self._level = 0

    async def sleep(self, level: int) -> None:
        self._level = level
        await self._engine.sleep(level=level)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        await self._engine.wake_up(tags)
        if tags != ["kv_cache"] and (self._level == 2 or self._damages):
            await self._engine.collective_rpc("reset_weights")  # vLLM's own: all become 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class TestReplaced:
    pytestmark = needs_vllm

    async def test_the_engine_has_the_weights_in_the_folder(self, engine: VllmModel, folders: list[Path]) -> None:
        assert distance(folders[0], await sample(engine)) < 1e-4
        views = []
        for step, folder in enumerate((folders[1], folders[0], folders[1])):
            views.append(await engine.with_weights(folder, f"policy@{step}"))
            assert views[-1].name == f"policy@{step}"
            for model in (views[-1], engine):
                completion = await sample(model)
                assert distance(folder, completion) < 1e-4
            assert distance(folders[folder == folders[0]], completion) > 0.1
        with pytest.raises(EngineError, match="its weights were replaced by newer ones") as caught:
            await sample(views[0])
        assert "\n" not in str(caught.value)

    async def test_what_does_not_fit_is_one_line_and_the_engine_keeps_its_weights(
        self, engine: VllmModel, folders: list[Path], tmp_path: Path
    ) -> None:
        await engine.with_weights(folders[1], "policy@1")
        refused = {
            write_model(tmp_path / "wide", seed=0, hidden=96): r"of shape \[2048, 64\] .* got \[2048, 96\]",
            write_short(tmp_path / "none"): "found none",
        }
        for folder, reason in refused.items():
            with pytest.raises(EngineError, match=reason) as caught:
                await engine.with_weights(folder, "policy@2")
            assert "\n" not in str(caught.value)
            assert str(folder) in str(caught.value)
        assert distance(folders[1], await sample(engine)) < 1e-4


class TestSlept:
    pytestmark = needs_vllm

    @pytest.mark.parametrize(("level", "damages", "reloads"), [(2, False, 0), (1, True, 1), (1, False, 0)])
    async def test_weights_and_adapters_come_back(
        self, engine: VllmModel, folders: list[Path], tmp_path: Path, level: int, damages: bool, reloads: int
    ) -> None:
        from transformers import AutoModelForCausalLM

        await engine.with_weights(folders[1], "policy@1")
        write_adapters(AutoModelForCausalLM.from_pretrained(folders[1]), adapters := [tmp_path / name for name in "ab"])
        views = [await engine.with_adapter(adapter, f"policy@{adapter.name}") for adapter in adapters]
        own = engine.engine
        engine.engine = engine._weights._engine = Drowsy(own, damages=damages)
        engine._sleep_mode = SleepMode(engine.engine, engine._weights, level)
        try:
            async with asyncio.timeout(60), engine.asleep():
                waiting = asyncio.create_task(sample(views[0]))
                await asyncio.sleep(0)
            for view, adapter in zip(views, adapters, strict=True):
                assert distance(folders[1], await sample(view), adapter) < 1e-4
            assert distance(folders[1], await sample(engine)) < 1e-4
            assert distance(folders[1], await waiting, adapters[0]) < 1e-4
            (waking,) = engine.take_wakings()
            assert (waking.reloads, waking.distance < 1e-4) == (reloads, True)
        finally:
            engine.engine = engine._weights._engine = own
            engine._sleep_mode = None


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)")
def test_a_run_that_trains_all_weights_samples_from_those_of_each_step(folders: list[Path], tmp_path: Path) -> None:
    """Without them, sampler and trainer would be apart from the second step on."""
    words = ["method=ppo", "method.critic=full", "method.steps=3", "method.problems_per_step=4", "method.max_tokens=16"]
    words += ["method.overflow_penalty=1", "method.whiten=false", "method.eval_samples=1", "method.eval_every=3"]
    words += ["task=arithmetic", "task.limit=2", "task.train_problems=16", "evorun.progress=off"]
    words += ["model=local", f"model.id={folders[0]}", "model.context_length=1024", "model.dtype=float32"]
    words += ["engine=vllm", "engine.max_model_len=1024", "engine.cpu_kv_cache_gib=0.25", "engine.max_num_seqs=16"]
    words += ["training=full", "training.learning_rate=0.002", "training.offload=true", f"hydra.run.dir={tmp_path}"]
    done = subprocess.run([sys.executable, "-m", "evorun", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line)["figures"] for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert len(figures) == 3
    for step in figures:
        assert step["grad_norm"] > 0.1
        assert step["sampler_kl"] < 1e-4


def write_short(folder: Path) -> Path:
    """Write a tokenizer without a model."""
    write_short_tokenizer(folder)
    return folder

"""The vllm engine under LoRA adapters, on the embedded model and vLLM's CPU build: it says what PEFT says."""

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from building import make_config
from evorun.errors import EngineError
from evorun.models import LanguageModel, Reply
from evorun.models.adapters import read_adapter
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmConfig, VllmModel
from evorun.testing.engines import ask
from lora_adapters import RANK, greedy_under, load_base, write_adapters

needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]
EMBEDDED = ModelConfig(
    name="smollm2_135m", id="HuggingFaceTB/SmolLM2-135M-Instruct", context_length=8192, dtype="float32", embedded=True
)
TEXTS = ("Name a colour.", "Tell me about the sea.")
MAX_TOKENS = 16
HELD = 3
"""As with `training.max_lag=2`."""


def small_engine(**changes: Any) -> VllmConfig:
    return make_config("engine", "vllm", max_model_len=1024, max_num_seqs=16, cpu_kv_cache_gib=0.5, **changes)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[VllmModel]:
    model = await small_engine(lora_rank=RANK, held_adapters=HELD).open(EMBEDDED)
    assert isinstance(model, VllmModel)
    yield model
    await model.close()


@pytest.fixture(scope="module")
def base() -> Any:
    return load_base()


@pytest.fixture(scope="module")
def adapters(base: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp("adapters") / name for name in "ab"]
    write_adapters(base, folders)
    return folders


@pytest.fixture(scope="module")
def expected(base: Any, adapters: list[Path]) -> dict[Path | None, list[tuple[str, list[int]]]]:
    """Greedy text and token ids for each of `TEXTS`, by adapter."""
    return {
        adapter: [greedy_under(base, adapter, ask(text).messages, MAX_TOKENS) for text in TEXTS]
        for adapter in (None, *adapters)
    }


async def said(model: LanguageModel) -> list[tuple[str, list[int]]]:
    """Return greedy text and token ids for each of `TEXTS`."""
    requests = [ask(text, max_tokens=MAX_TOKENS, temperature=0.0, token_ids=True) for text in TEXTS]
    replies: list[Reply] = await asyncio.gather(*(model.complete(request) for request in requests))
    return [(reply.completions[0].text, list(reply.completions[0].token_ids or ())) for reply in replies]


class TestArguments:
    def test_no_adapters_unless_asked_for(self) -> None:
        assert not [key for key in make_config("engine", "vllm").engine_arguments(EMBEDDED, "folder") if "lora" in key]

    def test_room_for_the_rank_that_is_asked_for(self) -> None:
        arguments = make_config("engine", "vllm").for_adapters(33, held=5).engine_arguments(EMBEDDED, "folder")
        assert arguments["enable_lora"] is True
        assert arguments["max_lora_rank"] == 64
        assert arguments["max_loras"] >= 5

    async def test_without_room_one_line_says_which_key_makes_some(self, tmp_path: Path) -> None:
        (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 3}')
        (tmp_path / "adapter_model.safetensors").touch()
        with pytest.raises(EngineError, match=r"engine\.lora_rank=null; set engine\.lora_rank=3$"):
            await VllmModel(None, None, EMBEDDED).with_adapter(tmp_path, "policy@1")


class TestUnder:
    pytestmark = needs_vllm

    async def test_each_view_says_what_peft_says_and_the_model_what_it_said(
        self, engine: VllmModel, adapters: list[Path], expected: dict[Path | None, Any]
    ) -> None:
        assert len({str(answers) for answers in expected.values()}) == 3
        views = {adapter: await engine.with_adapter(adapter, f"policy@{adapter.name}") for adapter in adapters}
        assert [view.name for view in views.values()] == ["policy@a", "policy@b"]
        # Twice: all in one batch, then one after another.
        together = await asyncio.gather(said(engine), *(said(view) for view in views.values()))
        assert together == list(expected.values())
        for adapter, view in views.items():
            assert await said(view) == expected[adapter]
            assert await said(engine) == expected[None]

    async def test_adapters_of_past_steps_leave_the_memory(
        self, engine: VllmModel, adapters: list[Path], expected: dict[Path | None, Any]
    ) -> None:
        views: list[LanguageModel] = []
        for step in range(5):
            views.append(await engine.with_adapter(adapters[step % 2], f"policy@{step}"))
            for number in range(max(0, step + 1 - HELD), step + 1):
                assert await said(views[number]) == expected[adapters[number % 2]]
            assert min(step + 1, HELD) <= len(await engine.engine.list_loras()) <= HELD
        assert await asyncio.gather(said(engine), said(views[-1])) == [expected[None], expected[adapters[0]]]
        with pytest.raises(EngineError, match="was unloaded for the 3 newest") as caught:
            await said(views[-4])
        assert "\n" not in str(caught.value)

    async def test_a_folder_is_not_read_again_and_with_new_weights_is_a_new_adapter(
        self, engine: VllmModel, adapters: list[Path], expected: dict[Path | None, Any], tmp_path: Path
    ) -> None:
        for adapter in adapters:
            folder = shutil.copytree(adapter, tmp_path / "policy")
            view = await engine.with_adapter(folder, "policy")
            shutil.rmtree(folder)
            assert await said(view) == expected[adapter]

    async def test_what_cannot_be_served_is_one_line_and_the_engine_goes_on(
        self, engine: VllmModel, base: Any, adapters: list[Path], expected: dict[Path | None, Any], tmp_path: Path
    ) -> None:
        write_adapters(base, [tmp_path / "large"], rank=RANK + 1)
        dora = shutil.copytree(adapters[0], tmp_path / "dora")
        config = (dora / "adapter_config.json").read_text()
        (dora / "adapter_config.json").write_text(config.replace('"use_dora": false', '"use_dora": true'))
        refused = {tmp_path / "none": "found no", tmp_path / "large": "has rank 5", dora: "DoRA"}
        for folder, reason in refused.items():
            with pytest.raises(EngineError, match=reason) as caught:
                await engine.with_adapter(folder, "policy")
            assert "\n" not in str(caught.value)
            assert str(folder) in str(caught.value)
        assert await said(engine) == expected[None]


class TestModelWithAdapter:
    pytestmark = needs_vllm

    async def test_it_says_what_peft_says(self, adapters: list[Path], expected: dict[Path | None, Any]) -> None:
        adapter, other = adapters
        model = await small_engine().open(dataclasses.replace(EMBEDDED, adapter=str(adapter)))
        try:
            assert model.name == f"{EMBEDDED.id}+adapter:{read_adapter(adapter).digest}"
            assert await said(model) == expected[adapter]
            assert isinstance(model, VllmModel)
            with pytest.raises(EngineError, match=r"model\.adapter=null"):
                await model.with_adapter(other, "policy")
        finally:
            await model.close()

    async def test_an_adapter_of_another_model_is_refused_before_anything_starts(
        self, base: Any, tmp_path: Path
    ) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        write_adapters(LlamaForCausalLM(LlamaConfig(**shape, vocab_size=32)), [tmp_path / "a"])
        with pytest.raises(EngineError, match="does not fit model") as caught:
            await small_engine().open(dataclasses.replace(EMBEDDED, adapter=str(tmp_path / "a")))
        assert "\n" not in str(caught.value)

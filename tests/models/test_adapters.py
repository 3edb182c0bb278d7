"""Models under a LoRA adapter: which adapter it is, what does not fit, and what the transformers engine says."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models.adapters import SERVED_RANKS, read_adapter, require_fit, served_rank
from evorun.models.config import ModelConfig
from evorun.testing.engines import ask
from lora_adapters import greedy_under, load_base, write_adapters

EMBEDDED = {"name": "smollm2_135m", "id": "HuggingFaceTB/SmolLM2-135M-Instruct", "dtype": "float32", "embedded": True}
SETTINGS = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "/here",
    "peft_version": "0.21.2",
    "use_dora": False,
}


def write(folder: Path, settings: dict[str, Any] | str = SETTINGS, weights: bytes = b"weights") -> Path:
    """Write what looks like an adapter."""
    folder.mkdir(parents=True, exist_ok=True)
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (folder / "adapter_config.json").write_text(text)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


class TestIdentity:
    def test_without_an_adapter_it_is_the_id(self) -> None:
        assert ModelConfig(name="m", id="some/model").identity == "some/model"

    def test_with_one_it_is_the_id_and_twelve_digits(self, tmp_path: Path) -> None:
        model = ModelConfig(name="m", id="some/model", adapter=str(write(tmp_path / "a")))
        base, _, digits = model.identity.partition("+adapter:")
        assert base == "some/model"
        assert len(digits) == 12
        assert set(digits) <= set("0123456789abcdef")

    @pytest.mark.parametrize(
        "change",
        [
            {"target_modules": ["v_proj", "q_proj"]},
            {"base_model_name_or_path": "/there"},
            {"peft_version": "1.0"},
            {"use_dora": None, "a_setting_of_a_newer_peft": False},
            {"lora_dropout": 0.1},
        ],
        ids=str,
    )
    def test_the_same_function_written_otherwise(self, change: dict[str, Any], tmp_path: Path) -> None:
        first, second = write(tmp_path / "a"), write(tmp_path / "b", SETTINGS | change)
        assert read_adapter(first).digest == read_adapter(second).digest

    @pytest.mark.parametrize(
        "change",
        [
            {"lora_alpha": 16},
            {"use_rslora": True},
            {"target_modules": ["q_proj"]},
            {"alpha_pattern": {"q_proj": 1}},
            {"a_setting_of_a_newer_peft": True},
        ],
        ids=str,
    )
    def test_another_function(self, change: dict[str, Any], tmp_path: Path) -> None:
        first, second = write(tmp_path / "a"), write(tmp_path / "b", SETTINGS | change)
        assert read_adapter(first).digest != read_adapter(second).digest

    def test_other_weights(self, tmp_path: Path) -> None:
        first, second = write(tmp_path / "a"), write(tmp_path / "b", weights=b"Weights")
        assert read_adapter(first).digest != read_adapter(second).digest

    def test_other_weights_far_into_the_file(self, tmp_path: Path) -> None:
        """Behind the first MiB, as all but the first matrices of a real adapter are."""
        first, second = (write(tmp_path / end, weights=bytes(2**20) + end.encode()) for end in "ab")
        assert read_adapter(first).digest != read_adapter(second).digest

    def test_rank_is_the_largest_of_all_modules(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", SETTINGS | {"rank_pattern": {"q_proj": 20, "v_proj": 2}})
        assert read_adapter(folder).rank == 20
        assert served_rank(read_adapter(folder).rank) == 32


def no_weights(folder: Path) -> None:
    (write(folder) / "adapter_model.safetensors").unlink()


def whole_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda folder: None, "found no such folder; give the folder of a LoRA adapter"),
    "a file is missing": (lambda folder: folder.mkdir(), "found no adapter_config.json"),
    "a run directory": (lambda folder: write(folder / "artifacts" / "adapter"), "its adapter in .*/artifacts/adapter"),
    "a whole model": (whole_model, "whole model, which model=local model.id=.* runs"),
    "no weights": (no_weights, "found no adapter_model.safetensors"),
    "not JSON": (lambda folder: write(folder, "{"), "cannot be read"),
    "no rank": (lambda folder: write(folder, {"peft_type": "LORA"}), "cannot be read: .*`r`"),
    "no such rank": (lambda folder: write(folder, SETTINGS | {"r": -8}), "cannot be read: .*`int` >= 1"),
    "too deep": (lambda folder: write(folder, '{"peft_type": "LORA", "r": 8, "x": %s1' % ("[" * 10**5)), "recursion"),
    "no names": (lambda folder: write(folder, SETTINGS | {"target_modules": ["q", 1]}), "cannot be read"),
    "too long": (lambda folder: write(folder, SETTINGS | {"x": "x" * 2**24}), "cannot be read: Input data was trunc"),
    "another kind": (lambda folder: write(folder, SETTINGS | {"peft_type": "IA3"}), "expected peft_type LORA, got IA3"),
}


@pytest.mark.parametrize(("make", "message"), BROKEN.values(), ids=BROKEN.keys())
async def test_what_is_no_adapter_is_one_line(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    make(tmp_path / "a")
    with pytest.raises(EngineError, match=message) as caught:
        await make_config("engine", "transformers").open(ModelConfig(**EMBEDDED, adapter=str(tmp_path / "a")))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "a") in str(caught.value)


@pytest.mark.parametrize(("rank", "expected"), [(1, 1), (2, 8), (8, 8), (33, 64), (512, 512)])
def test_served_ranks_are_rounded_up(rank: int, expected: int) -> None:
    assert served_rank(rank) == expected


def test_ranks_beyond_all_are_refused() -> None:
    with pytest.raises(EngineError, match="got 513"):
        served_rank(SERVED_RANKS[-1] + 1)


class TestFit:
    """Adapters that PEFT made for small Llamas, against Llamas of other shapes."""

    @staticmethod
    def llama(**changes: int) -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        return LlamaForCausalLM(LlamaConfig(**{**shape, "num_key_value_heads": 1, "vocab_size": 32, **changes}))

    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Path:
        write_adapters(self.llama(), [tmp_path / "a"], rank=2)
        return tmp_path / "a"

    def test_its_own_base_fits(self, adapter: Path) -> None:
        require_fit(read_adapter(adapter), self.llama(), "m")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"num_hidden_layers": 1}, "changes model.layers.1.* which this model does not have"),
            ({"intermediate_size": 24}, "down_proj has 24 inputs, the adapter's matrix 16"),
            ({"num_key_value_heads": 2}, "v_proj has 8 outputs, the adapter's matrix 4"),
        ],
    )
    def test_other_shapes_do_not(self, change: dict[str, int], message: str, adapter: Path) -> None:
        with pytest.raises(EngineError, match=f"does not fit model 'm': .*{message}"):
            require_fit(read_adapter(adapter), self.llama(**change), "m")

    def test_a_file_cut_short_is_one_line(self, adapter: Path) -> None:
        file = adapter / "adapter_model.safetensors"
        file.write_bytes(file.read_bytes()[:-10])
        with pytest.raises(EngineError, match="is broken") as caught:
            require_fit(read_adapter(adapter), self.llama(), "m")
        assert "\n" not in str(caught.value)

    def test_no_matrices_at_all(self, adapter: Path, tmp_path: Path) -> None:
        from safetensors.numpy import save_file

        save_file({}, adapter / "adapter_model.safetensors")
        with pytest.raises(EngineError, match="holds no LoRA matrices"):
            require_fit(read_adapter(adapter), self.llama(), "m")


@pytest.fixture(scope="module")
def base() -> Any:
    return load_base()


@pytest.fixture(scope="module")
def adapter_of_base(base: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "a"
    write_adapters(base, [folder])
    return folder


@pytest.mark.embedded
class TestTransformersEngine:
    @pytest.mark.nightly  # training/test_training_runs.py serves the adapter of a tiny model
    async def test_says_what_peft_says(self, base: Any, adapter_of_base: Path) -> None:
        model = ModelConfig(**EMBEDDED, adapter=str(adapter_of_base))
        requests = [ask(t, max_tokens=16, temperature=0.0) for t in ("Name a colour.", "What is 2 + 2?")]
        engine = await make_config("engine", "transformers", max_batch_size=2).open(model)
        try:
            replies = await asyncio.gather(*(engine.complete(r) for r in requests))
            assert engine.name == model.identity
        finally:
            await engine.close()
        for request, reply in zip(requests, replies, strict=True):
            plain, _ = greedy_under(base, None, request.messages, 16)
            under, _ = greedy_under(base, adapter_of_base, request.messages, 16)
            assert plain != under
            assert reply.completions[0].text == under

    @pytest.mark.nightly
    async def test_an_adapter_of_another_model_is_one_line(self, tmp_path: Path) -> None:
        write_adapters(TestFit.llama(), [tmp_path / "a"], rank=2)
        with pytest.raises(EngineError, match="does not fit model 'HuggingFaceTB") as caught:
            await make_config("engine", "transformers").open(ModelConfig(**EMBEDDED, adapter=str(tmp_path / "a")))
        assert "\n" not in str(caught.value)

    @pytest.mark.nightly
    async def test_without_peft_one_line_says_how_to_get_it(
        self, adapter_of_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = shutil.copytree(adapter_of_base, tmp_path / "a")
        monkeypatch.setitem(sys.modules, "peft", None)
        with pytest.raises(EngineError, match=r"pip install 'evorun\[train\]'"):
            await make_config("engine", "transformers").open(ModelConfig(**EMBEDDED, adapter=str(copy)))

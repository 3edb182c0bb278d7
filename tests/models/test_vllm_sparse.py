"""Adapters on mixtures of experts in vLLM: what it is told, what is refused, and its CPU build's log-probabilities."""

import dataclasses
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from building import make_config, training_config
from evorun.errors import ConfigError, EngineError
from evorun.models import Reply
from evorun.models.adapters import adapted_layers, merge_adapter, read_adapter
from evorun.models.config import ModelConfig
from evorun.models.requirements import load_skeleton
from evorun.models.vllm import startup
from evorun.models.vllm.sparse import find_adapter_arguments
from evorun.runner.requirements import require_served_targets
from evorun.runner.training_runs import largest_rank
from evorun.testing.engines import ask
from forward_pass import scorer
from tiny_sparse import EXPERTS, NAMES, make_sparse, write_sparse

pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:The following .*_pattern keys")
needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
]
RANK = 4


def under_adapter(model: Any, *targets: str, seed: int = 1) -> Any:
    """Return the model under an adapter of random matrices."""
    import torch
    from peft import get_peft_model

    from evorun.training.weights import adapter

    made = get_peft_model(model, adapter(training_config(rank=RANK, alpha=2.0 * RANK, target_modules=targets), model))
    generator = torch.Generator().manual_seed(seed)
    for name, weight in made.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.1, generator=generator)
    return made


class TestSettings:
    def test_the_largest_rank_is_twice_the_settings_where_experts_join_two_projections(self, tmp_path: Path) -> None:
        sparse = ModelConfig(name="sparse", id=str(write_sparse("qwen3_moe", tmp_path / "sparse")))
        (tmp_path / "dense").mkdir()
        shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        dense = json.dumps({**shape, "intermediate_size": 8, "vocab_size": 9})
        (tmp_path / "dense" / "config.json").write_text(dense)
        assert largest_rank(sparse, training_config()) == 64
        assert largest_rank(sparse, training_config(target_modules=["q_proj", "o_proj"])) == 32
        assert largest_rank(ModelConfig(name="dense", id=str(tmp_path / "dense")), training_config()) == 32
        assert read_adapter(exported(make_sparse("qwen3_moe"), tmp_path / "adapter", "all-linear")).rank == 2 * RANK

    def test_the_users_rank_goes_first(self) -> None:
        engine = make_config("engine", "vllm")
        assert engine.for_adapters(64, 2).lora_rank == 64
        assert make_config("engine", "vllm", lora_rank=128).for_adapters(64, 2).lora_rank == 128
        with pytest.raises(ConfigError, match=r"^engine\.lora_rank: expected at least 64, .* got 32$"):
            make_config("engine", "vllm", lora_rank=32).for_adapters(64, 2)

    def test_arguments_for_experts(self) -> None:
        qwen, gpt_oss = make_sparse("qwen3_moe"), make_sparse("gpt_oss")
        assert find_adapter_arguments(qwen) == {"enable_mixed_moe_lora_format": True}
        assert find_adapter_arguments(gpt_oss) == {}  # its own format


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "cpu", "targets", "line"),
        [
            (
                "qwen3_moe",
                True,
                ["q_proj"],
                "includes a layer of a sparse model, for which vLLM's CPU build has no kernels with ",
            ),
            ("qwen3_moe", False, ["all-linear", "gate"], r"includes the router \(gate\), on which "),
            ("qwen3_moe", False, ["q_proj", "experts.down_proj"], "includes mlp.experts.down_proj alone, while vLLM "),
            ("deepseek_v3", False, ["all-linear"], "includes kv_b_proj, which vLLM merges into its attention "),
        ],
    )
    def test_layers_that_vllm_would_ignore(self, name: str, cpu: bool, targets: list[str], line: str) -> None:
        training = training_config(target_modules=targets)
        with pytest.raises(ConfigError, match=rf"^training\.target_modules: {line}.*engine=transformers") as caught:
            require_served_targets(make_sparse(name), training, cpu=cpu)
        if not cpu:
            others = str(caught.value).rpartition("or only ")[2].split(", ")
            assert {"experts", "o_proj"} <= set(others)
            require_served_targets(make_sparse(name), training_config(target_modules=others))

    def test_positions_that_the_cpu_build_gets_wrong(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Measured: log-probabilities are 2 to 6 nats from transformers', and equal with YaRN or without positions."""
        monkeypatch.setattr(startup, "is_cpu_build", lambda: True)
        folder = write_sparse("deepseek_v3", tmp_path)
        model = ModelConfig(name="deepseek", id=str(folder))
        startup._require_positions(model)
        config = json.loads((folder / "config.json").read_text())
        plain = {"rope_type": "default", "rope_theta": 10000.0}
        (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": plain}))
        load_skeleton.cache_clear()
        with pytest.raises(EngineError, match=r"positions wrong \(rope_interleave without YaRN\); use engine=transf"):
            startup.prepare(model, None)

    def test_experts_of_an_architecture_with_other_names(self) -> None:
        model = make_sparse("qwen3_moe")
        type(model).__name__, name = "MixtralForCausalLM", type(model).__name__
        try:
            with pytest.raises(ConfigError, match="the experts, on which vLLM takes no adapter of MixtralForCausalLM"):
                require_served_targets(model, training_config())
        finally:
            type(model).__name__ = name


def exported(model: Any, folder: Path, *targets: str) -> Path:
    """Write a random adapter into a folder, and return the folder."""
    under_adapter(model, *targets).save_pretrained(folder)
    return folder


class TestWithVllm:
    pytestmark = needs_vllm

    def test_its_cpu_build_has_no_kernel_for_adapters_on_experts(self) -> None:
        """An engine that takes adapters starts there, and its first pass fails: see `describe_unserved`."""
        from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase
        from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

        assert PunicaWrapperCPU.add_lora_fused_moe is PunicaWrapperBase.add_lora_fused_moe  # which raises

    @pytest.mark.parametrize("name", NAMES)
    def test_it_reads_the_adapters_of_experts_as_peft_writes_them(self, name: str, tmp_path: Path) -> None:
        """By its own functions, since its CPU build has no kernel that would use them."""
        import torch
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.model_manager import LoRAModelManager
        from vllm.lora.peft_helper import PEFTHelper
        from vllm.model_executor.models.registry import ModelRegistry

        model = under_adapter(make_sparse(name), "experts")
        model.save_pretrained(tmp_path)
        assert read_adapter(tmp_path).stacks_experts
        assert adapted_layers(read_adapter(tmp_path)) == {"experts"}
        kind = type(model.get_base_model()).__name__
        cls: Any = ModelRegistry._try_load_model_cls(kind)
        mapper = getattr(cls, "hf_to_vllm_mapper", None)
        helper = PEFTHelper.from_local_dir(str(tmp_path), 2048)
        lora = LoRAModel.from_local_checkpoint(
            *(str(tmp_path), {"experts"}),
            **{"peft_helper": helper, "lora_model_id": 1, "device": "cpu", "dtype": torch.float32},
            weights_mapper=mapper and mapper.get_rename_mapper(),
        )
        for layer in lora.loras.values():
            layer.optimize()
        manager: Any = SimpleNamespace(
            _get_lora_layer_weights=lambda lora, layer: lora.get_lora(layer),
            _is_3d_moe_model=getattr(cls, "is_3d_moe_weight", False),
            model=SimpleNamespace(config=SimpleNamespace(architectures=[kind])),
        )
        module = SimpleNamespace(
            **{"local_num_experts": EXPERTS, "global_num_experts": EXPERTS, "ep_rank": 0},
            w13_lora_a_stacked=[torch.zeros(1, EXPERTS)],
        )
        layer = "model.layers.1.mlp.experts"
        outer = model.get_base_model().get_submodule(layer)
        down, gate_up = (wrapper.get_delta_weight("default") for wrapper in (outer, outer.base_layer))
        if arguments := find_adapter_arguments(model.get_base_model()):
            assert arguments == {"enable_mixed_moe_lora_format": True}
            LoRAModelManager._convert_3d_to_2d_moe_lora(manager, lora, module, layer)
            expected = [*gate_up.chunk(2, dim=1)[:1], down, *gate_up.chunk(2, dim=1)[1:]]
        else:
            LoRAModelManager._stack_moe_lora_weights(manager, lora, module, layer)
            expected = [gate_up.transpose(1, 2), down.transpose(1, 2)]
        read = lora.get_lora(layer)
        products = [b @ a for a, b in zip(read.lora_a, read.lora_b, strict=True)]
        assert len(products) == len(expected)
        for product, delta in zip(products, expected, strict=True):
            assert torch.allclose(product, delta, atol=1e-5)

    @pytest.mark.sample(1)
    @pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "qwen3_moe"])
    async def test_its_log_probabilities_are_the_trainers(self, name: str, tmp_path: Path) -> None:
        """With an adapter on all linear layers and experts: merged, since the CPU build refuses it before it loads."""
        folder = write_sparse(name, tmp_path / "model")
        from transformers import AutoTokenizer

        base = type(make_sparse(name)).from_pretrained(folder)
        trained = under_adapter(base, "all-linear")
        trained.save_pretrained(tmp_path / "adapter")
        merged = merge_adapter(type(base).from_pretrained(folder), read_adapter(tmp_path / "adapter"), name)
        merged.save_pretrained(tmp_path / "merged")
        AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "merged")
        config = ModelConfig(name=name, id=str(tmp_path / "merged"), context_length=1024, dtype="float32")
        engine = make_config("engine", "vllm", max_model_len=512, max_num_seqs=8, cpu_kv_cache_gib=0.2)
        adapted = dataclasses.replace(config, id=str(folder), adapter=str(tmp_path / "adapter"))
        for refused, by in ((adapted, engine), (config, dataclasses.replace(engine, lora_rank=8))):
            with pytest.raises(
                EngineError, match="a layer of a sparse model, for which vLLM's CPU build has no kernels with"
            ):
                await by.open(refused)
        served = await engine.open(config)
        try:
            asked = ask("Tell me about the sea.", max_tokens=24, temperature=1.0, token_ids=True, logprobs=True)
            reply = await served.complete(asked)
        finally:
            await served.close()
        assert worst_gap(trained, reply) < 1e-4
        with trained.disable_adapter():
            assert worst_gap(trained, reply) > 0.1  # the adapter matters


def worst_gap(model: Any, reply: Reply) -> float:
    """Return how far a completion's log-probabilities are from those of a plain forward pass."""
    (completion,) = reply.completions
    asked = ask("", max_tokens=1, temperature=1.0).sampling
    own = scorer(model)(reply.prompt_ids or (), completion.token_ids or (), asked)
    return max(abs(mine - theirs) for mine, theirs in zip(own, completion.logprobs or (), strict=True))

"""Adapters on mixtures of experts: what they change, their gradients, what is exported, and a resume."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl")
import steps
import torch
from parity_task import adapter_of, cut_back, finished, lines, records, same_tensors
from safetensors.torch import load_file, save_file
from steps import EXACT, random_rows
from test_fine_tuning import Tuned, sum_of_losses
from transformers import AutoTokenizer

from building import make_job, policy_gradient, training_config
from evorun.errors import ConfigError
from evorun.models.adapters import merge_adapter, read_adapter
from evorun.models.architecture import Architecture
from evorun.models.experts import find_experts, find_routers
from evorun.training import weights
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.serving import Serving
from evorun.training.wire import Export, Row, Train
from forward_pass import plain_model
from tiny_sparse import EXPERTS, NAMES, make_sparse, write_sparse

pytestmark = pytest.mark.filterwarnings("ignore:The following .*_pattern keys")

RANK = 4
SCALE = 2.0
"""Alpha by rank, of each part of the adapter."""
ROUTERS = {"qwen3_moe": "gate", "deepseek_v3": "gate", "gpt_oss": "router"}
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
LINEAR = {
    "qwen3_moe": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "deepseek_v3": {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", *FEED_FORWARD},
    "gpt_oss": {"q_proj", "k_proj", "v_proj", "o_proj"},
}
"""Linear layers beside the experts' and the output layer."""


def make_trainer(name: str, folder: Path, *batches: list[Row], **training: Any) -> Any:
    told = policy_gradient(steps=len(batches))
    job = make_job(folder, folder, training_config(**{**EXACT, "rank": RANK, "alpha": RANK * SCALE, **training}), told)
    _, tokenizer = steps.tiny()
    return PolicyGradientTrainer(job, told, make_sparse(name), tokenizer, steps.Batches(batches))  # type: ignore[arg-type]


def fill(trainer: Any) -> None:
    """Give the adapter's second matrices, which are zero at first, random values."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in trainer.policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.1, generator=generator)


def matrices(trainer: Any) -> dict[str, torch.Tensor]:
    """Return the adapter's matrices by the names of the base model's layers and PEFT's for its experts."""
    return {
        steps.named(name).removeprefix("base_model.model."): weight.detach()
        for name, weight in trainer.policy.named_parameters()
        if weight.requires_grad
    }


def changed(name: str, adapter: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of the model with the adapter's products added: per expert for stacked ones."""
    model = make_sparse(name)
    found = dict(model.named_parameters())
    for key, a in adapter.items():
        if "lora_A" not in key:
            continue
        b, layer = adapter[key.replace("lora_A", "lora_B")], key.partition(".lora_A")[0]
        if layer.endswith(("experts", "experts.base_layer")):
            joined = layer.endswith("base_layer")
            target = f"{layer.removesuffix('.base_layer')}.{'gate_up_proj' if joined else 'down_proj'}"
            rank = len(a) // EXPERTS
            assert rank == (2 * RANK if joined else RANK)
            products = []
            for expert in range(EXPERTS):
                own_a = a[expert * rank : (expert + 1) * rank]
                products.append(b[:, expert::EXPERTS] @ own_a)
            product = torch.stack(products)
            if name == "gpt_oss":  # which stores inputs before outputs
                product = product.transpose(1, 2)
        else:
            target, product = f"{layer}.weight", b @ a
        found[target] = found[target] + SCALE * product
    return found


def logprobs(model: Any, given: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of all tokens but the first, by a plain forward pass with these weights."""
    logits = torch.func.functional_call(model, given, (ids,)).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]


@pytest.mark.parametrize("name", NAMES)
def test_all_linear_is_every_linear_layer_and_expert_but_no_router(name: str) -> None:
    model = make_sparse(name)
    experts, routers = find_experts(model), find_routers(model)
    layers = range(1 if name == "deepseek_v3" else 0, 2)
    assert experts == [f"model.layers.{n}.mlp.experts.{kind}_proj" for n in layers for kind in ("gate_up", "down")]
    assert routers == [f"model.layers.{n}.mlp.{ROUTERS[name]}" for n in layers]


@pytest.mark.parametrize(
    ("name", "checkpointing"),
    [
        *(pytest.param(name, False, id=name, marks=[pytest.mark.nightly] * (name == "qwen3_moe")) for name in NAMES),
        pytest.param("gpt_oss", True, id="checkpointed", marks=pytest.mark.nightly),
    ],
)
def test_a_step_has_the_gradient_of_a_plain_backward_pass(name: str, checkpointing: bool, tmp_path: Path) -> None:
    rows = random_rows(6)
    trainer = make_trainer(name, tmp_path, rows, learning_rate=1e-30, gradient_checkpointing=checkpointing)
    fill(trainer)
    adapter = {key: value.clone().requires_grad_() for key, value in matrices(trainer).items()}
    assert {key.partition(".lora_")[0].rpartition(".")[2] for key in adapter} == {
        *LINEAR[name],
        "experts",
        "base_layer",
    }
    model = make_sparse(name)
    given = changed(name, adapter)
    objective, on_policy = torch.zeros(()), []
    for row in rows:
        own = logprobs(model, given, torch.tensor([[*row.prompt, *row.tokens]]))[len(row.prompt) - 1 :]
        on_policy.append(msgspec.structs.replace(row, logprobs=tuple(own.tolist())))
        objective = objective - row.advantage * own.sum() / len(rows)
    objective.backward()
    trainer._serving = steps.Batches([on_policy])
    found = steps.watched(trainer)
    gradients = {key.removeprefix("base_model.model."): value for key, value in found.gradients[0].items()}
    assert gradients.keys() == adapter.keys()
    worst = {key: float((gradients[key] - value.grad).norm() / value.grad.norm()) for key, value in adapter.items()}
    assert max(worst.values()) < 1e-4, worst


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_pass_keeps_the_planned_copies_of_experts(checkpointing: bool, tmp_path: Path) -> None:
    trainer = make_trainer("qwen3_moe", tmp_path, gradient_checkpointing=checkpointing)
    policy = trainer.policy.train()
    if checkpointing:
        policy.gradient_checkpointing_enable()
    own = {weight.data_ptr() for weight in policy.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 3 and len(tensor) == EXPERTS and tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    ids = torch.arange(1, 40)[None]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = policy(input_ids=ids, labels=ids).loss
    shape = Architecture.from_config(make_sparse("qwen3_moe").config.to_dict())
    assert sum(kept.values()) == (0 if checkpointing else 4 * shape.parameters.experts)
    loss.backward()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name != "gpt_oss")) for name in NAMES]
)
def test_the_exported_adapter_says_the_same_in_peft_and_merged(name: str, tmp_path: Path) -> None:
    """The router's, too, where it is named."""
    from peft import PeftModel

    trainer = make_trainer(name, tmp_path, target_modules=["all-linear", ROUTERS[name], "lm_head"])
    fill(trainer)
    serving = Serving(None, None, SimpleNamespace(use=lambda *_: torch.no_grad()))  # type: ignore[arg-type]
    serving.bind(trainer)
    serving._carry_out(Export(str(tmp_path / "adapter"), "tiny"))
    ids = torch.arange(1, 40)[None]
    adapter = matrices(trainer)
    expected = logprobs(make_sparse(name), changed(name, adapter), ids)
    assert sum(f".{ROUTERS[name]}." in key for key in adapter) == 2 * (1 if name == "deepseek_v3" else 2)
    assert not torch.allclose(expected, logprobs(make_sparse(name), {}, ids), atol=0.1)
    with torch.no_grad():
        again = PeftModel.from_pretrained(make_sparse(name), str(tmp_path / "adapter"))
        read = read_adapter(tmp_path / "adapter")
        assert read.rank == 2 * RANK
        merged = merge_adapter(make_sparse(name), read, "tiny")
        for model in (trainer.policy, again, merged):
            assert torch.allclose(logprobs(model, {}, ids), expected, atol=1e-4)


def test_layers_and_experts_are_chosen_by_name() -> None:
    model = make_sparse("deepseek_v3")

    def adapted(*targets: str) -> set[str]:
        weights.require_targets(model, list(targets))
        found = weights.adapter(training_config(target_modules=list(targets)), model)
        return {*(found.target_modules or ()), *(found.target_parameters or ())}

    assert adapted("q_b_proj", "o_proj") == {"self_attn.q_b_proj", "self_attn.o_proj"}
    stacked = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
    assert adapted("experts") == adapted("experts.gate_up_proj", "experts.down_proj") == stacked
    shared = {f"mlp.shared_experts.{name}.weight" for name in FEED_FORWARD}
    dense = {f"mlp.{name}.weight" for name in FEED_FORWARD}
    assert adapted(*FEED_FORWARD) == stacked | shared | dense
    assert adapted("shared_experts.gate_proj") == {"mlp.shared_experts.gate_proj.weight"}
    assert adapted("all-linear", "gate") - adapted("all-linear") == {"mlp.gate.weight"}


@pytest.mark.parametrize(
    ("targets", "dropout", "line"),
    [
        (
            ["q_proj", "up_proj"],
            0.0,
            "target_modules: expected gate_proj and up_proj together, which each expert",
        ),
        (
            ["q_proj", "expert"],
            0.0,
            "target_modules: the model has no linear layer 'expert'; it has down_proj, gate, ",
        ),
        (
            ["all-linear"],
            0.1,
            "dropout: expected 0 with an adapter on mlp.experts.down_proj, mlp.experts.gate_up_proj, ",
        ),
    ],
)
def test_what_an_expert_cannot_have_is_one_line(targets: list[str], dropout: float, line: str) -> None:
    model = make_sparse("qwen3_moe")

    def require() -> None:
        weights.require_targets(model, targets)
        weights.refuse_dropout(model, training_config(target_modules=targets, dropout=dropout))

    with pytest.raises(ConfigError) as caught:
        require()
    assert str(caught.value).startswith(f"training.{line}")
    assert "\n" not in str(caught.value)
    weights.refuse_dropout(model, training_config(target_modules=["q_proj"], dropout=0.1))


def test_experts_stored_in_4_bits_are_trained_on_as_numbers(tmp_path: Path) -> None:
    """MXFP4, as gpt-oss's published weights have it (OCP Microscaling Formats 1.0, sections 5.1 and 5.3.3)."""
    folder = write_sparse("gpt_oss", tmp_path / "model")
    tensors, values = load_file(folder / "model.safetensors"), {}
    generator = torch.Generator().manual_seed(0)
    digits = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    for key in [key for key in tensors if key.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(key).shape
        blocks = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(120, 127, blocks.shape[:-1], dtype=torch.uint8, generator=generator)
        tensors |= {f"{key}_blocks": blocks, f"{key}_scales": scales}
        halves = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2).long()
        numbers = digits[halves & 7] * (1 - 2 * (halves >> 3)) * torch.exp2(scales[..., None].float() - 127)
        values[key] = numbers.flatten(-2).transpose(1, 2)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}))
    model, _ = weights.load(make_job(folder, tmp_path, training_config(), policy_gradient()))
    assert values
    for key, expected in values.items():
        assert torch.equal(model.get_parameter(key), expected)


def test_fine_tuning_has_the_loss_of_the_tokens_alone(tmp_path: Path) -> None:
    """Without TRL's loss on the routers, which a frozen router would pass on to the layers below."""
    folder = write_sparse("qwen3_moe", tmp_path / "model")
    tuned = Tuned(folder, tmp_path / "run", [("What?", "That.")], learning_rate=1e-30, epochs=1.0)
    (figures,) = tuned.obey(Train(number=1))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
    with torch.no_grad():
        loss, tokens = sum_of_losses(
            plain_model(folder), [(prompt + tokenizer("That.<|im_end|>")["input_ids"], len(prompt))]
        )
    assert figures["loss"] == pytest.approx(float(loss / tokens), rel=1e-5)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_resumes_to_the_byte(tmp_path: Path) -> None:
    """Quicker: an adapter that is written and read again says the same, above."""
    model = write_sparse("deepseek_v3", tmp_path / "model")
    changes: dict[str, Any] = {"method": {"steps": 2, "eval_every": 2}, "training": {"save_every": 1}}
    whole = finished(tmp_path / "whole", model, **changes)
    assert any(line["figures"].get("grad_norm", 0) > 0 for line in lines(whole / "training.jsonl"))
    again = shutil.copytree(whole, tmp_path / "again")
    cut_back(again, step=2, left=3)
    shutil.rmtree(again / "checkpoints" / "update-2", ignore_errors=True)
    finished(again, model, **changes)
    assert records(again) == records(whole)
    trained = adapter_of(whole / "artifacts" / "adapter")
    assert same_tensors(adapter_of(again / "artifacts" / "adapter"), trained)
    assert any("experts.lora_B" in key and bool(matrix.any()) for key, matrix in trained.items())

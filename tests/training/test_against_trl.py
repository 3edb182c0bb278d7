"""A training step of evorun's against TRL's trainers called directly, and against the gradient written out in torch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_task import EMBEDDED, NO_TOKENIZER, adapter_of, finished, is_right, lines, write_model

from building import make_job, training_config
from evorun.models import Message
from evorun.models.chat import prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.runs.journal_reader import read_journal
from evorun.training.process import TrainerProcess
from evorun.training.wire import Export, Figures, PolicyGradient, Row, Train

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

SEED, GROUP, ROWS, TOKENS = 3, 4, 8, 12
# Two steps: the second one also depends on Adam's state and on the order of rows that TRL draws.
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"method": {"steps": 2, "loss": "grpo", "kl": 0.1}},
    "dr_grpo": {"method": {"steps": 2}, "training": {"micro_batch": 3}},
    "cispo": {"method": {"steps": 2, "name": "cispo", "minibatches": 2, "clip_high": 5.0}},
    "rloo": {"method": {"steps": 2, "name": "rloo"}},
}
"""Changes of each case to the small run."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def sampled(run: Path, steps: int) -> list[list[tuple[list[dict[str, str]], list[int]]]]:
    """Return each step's prompts and completions as the journal has them."""
    batches = []
    effects = {one.key: one for one in read_journal(run / "journal.sqlite")}
    for step in range(1, steps + 1):
        batch = []
        for place in range(ROWS):
            one = effects[f"*|{step}|rollout|{place}|0"]
            tokens = json.loads(one.result)["completions"][0]["token_ids"]
            batch.append((json.loads(one.request)["messages"], tokens))
        batches.append(batch)
    return batches


@pytest.mark.parametrize("case", CASES)
def test_losses_norms_and_adapter_are_those_of_bare_trl(case: str, model: Path, tmp_path: Path) -> None:
    import bare_trl

    run = finished(tmp_path / "run", model, **CASES[case], seed=SEED)
    figures = [line["figures"] for line in lines(run / "training.jsonl")]
    minibatches = CASES[case].get("method", {}).get("minibatches", 1)
    micro_batch = 2 if case == "dr_grpo" else ROWS // minibatches  # 3 does not divide 8
    bare = bare_trl.train(
        model,
        sampled(run, len(figures)),
        lambda text: float(is_right(text)),
        tmp_path / "bare",
        kind=case,
        group=GROUP,
        seed=SEED,
        micro_batch=micro_batch,
        accumulate=ROWS // micro_batch // minibatches,
        passes=ROWS // micro_batch,
        rank=4,
        learning_rate=0.01,
        max_completion_length=TOKENS,
        beta=0.1 if case == "grpo" else 0.0,
        epsilon=0.2,
        epsilon_high=5.0 if case == "cispo" else 0.2,
    )
    assert [one["loss"] for one in figures] == means(bare.losses, minibatches)
    assert [one["grad_norm"] for one in figures] == means(bare.grad_norms, minibatches)
    assert all(norm > 0 for norm in bare.grad_norms)
    trained = adapter_of(run / "artifacts" / "adapter")
    expected = {name.replace(".default.", "."): value for name, value in bare.adapter.items()}
    assert trained.keys() == expected.keys()
    assert all(bool((trained[name] == expected[name]).all()) for name in trained)
    assert any(bool(value.any()) for name, value in trained.items() if "lora_B" in name)


def test_the_objective_reaches_trl(model: Path, tmp_path: Path) -> None:
    from evorun.training.policy_gradient import _arguments

    objective = PolicyGradient(
        **{"trainer": "grpo", "loss": "grpo", "rows": ROWS, "group": GROUP, "steps": 3, "minibatches": 2},
        **{"kl": 0.1, "clip_low": 0.15, "clip_high": 0.3, "temperature": 0.7, "max_tokens": TOKENS},
    )
    told = _arguments(make_job(model, tmp_path, training_config(), objective), objective)
    assert [told[key] for key in ("epsilon", "epsilon_high", "temperature", "beta")] == [0.15, 0.3, 0.7, 0.1]
    assert [told[key] for key in ("num_generations", "max_steps", "max_completion_length")] == [GROUP, 6, TOKENS]


TINY = ModelConfig(name="tiny", id="tiny")


def said(system: str, user: str) -> tuple[Message, ...]:
    return (Message(role="system", content=system), Message(role="user", content=user))


def row(prompt: list[int], tokens: list[int], reward: float, tools: bool) -> Row:
    learned = tuple(index % 3 != 1 or not tools for index in range(len(tokens)))
    return Row(prompt=tuple(prompt), tokens=tuple(tokens), learned=learned, signal=reward)


@pytest.mark.parametrize("tools", [False, True])
async def test_the_gradient_is_that_of_the_papers_objective(model: Path, tmp_path: Path, tools: bool) -> None:
    """E-SPL, section 3.1: of the mean of (r - V_i) log pi(y | s_i, x), V_i the mean reward under system prompt i.

    TRL's dr_grpo divides by the greatest length, too. With so large an epsilon Adam's first step is the gradient, up to
    a factor that is known. What tools have said in a rollout (here: every third token) is not learned.
    """
    import torch
    from transformers import AutoTokenizer

    groups = [[f"Be {manner}.", f"Problem {x}"] for x in range(2) for manner in ("brief", "verbose, and polite")]
    rng, tokenizer = np.random.default_rng(0), AutoTokenizer.from_pretrained(model)
    rows = [
        row(
            prompt_token_ids(tokenizer, said(system, user), TINY),
            rng.integers(100, 40000, size=rng.integers(2, TOKENS + 1)).tolist(),
            float(rng.integers(0, 2)) + 0.1 * j,
            tools,
        )
        for system, user in groups
        for j in range(GROUP)
    ]
    step = 1e-2
    training = training_config(
        rank=4, alpha=8.0, learning_rate=step * 1e6, epsilon=1e6, max_grad_norm=1e9, micro_batch=len(rows) // 2
    )
    objective = PolicyGradient(
        **{"trainer": "grpo", "loss": "dr_grpo", "rows": len(rows), "group": GROUP, "steps": 1, "minibatches": 1},
        **{"kl": 0.0, "clip_low": 0.2, "clip_high": 0.2, "temperature": 1.0, "max_tokens": TOKENS},
    )
    trainer = await TrainerProcess.start(make_job(model, tmp_path, training, objective), tmp_path / "log")
    try:
        await trainer.ask(Export(str(tmp_path / "before"), "base"))
        figures = await trainer.ask(Train(number=1, rows=tuple(rows)))
        await trainer.ask(Export(str(tmp_path / "after"), "base"))
    finally:
        await trainer.close()
    before, after = adapter_of(tmp_path / "before"), adapter_of(tmp_path / "after")
    expected = gradients(model, before, rows, scale=8.0 / 4)
    for name, gradient in expected.items():
        moved = (after[name] - before[name]) / step
        assert torch.allclose(moved, gradient / TOKENS, rtol=1e-4, atol=1e-6), name
    norm = sum(float((gradient / TOKENS).square().sum()) for gradient in expected.values()) ** 0.5
    assert isinstance(figures, Figures)
    assert figures.figures["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.01


def gradients(model: Path, adapter: dict[str, Any], rows: list[Row], scale: float) -> dict[str, Any]:
    """Return the objective's gradient with respect to the adapter's matrices, its layers written out."""
    import torch
    from transformers import AutoModelForCausalLM

    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    matrices = {name: value.clone().requires_grad_() for name, value in adapter.items()}
    for name, module in weights.named_modules():
        key = f"base_model.model.{name}.lora_A.weight"
        if key in matrices:
            a, b = matrices[key], matrices[key.replace("lora_A", "lora_B")]
            module.register_forward_hook(lambda _, x, y, a=a, b=b: y + scale * (x[0] @ a.T @ b.T))
    objective = torch.zeros(())
    for start in range(0, len(rows), GROUP):
        group = rows[start : start + GROUP]
        value = sum(row.signal or 0.0 for row in group) / GROUP
        for row in group:
            ids = torch.tensor([[*row.prompt, *row.tokens]])
            log_probabilities = weights(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
            own = log_probabilities[len(row.prompt) - 1 :, 0] * torch.tensor(row.learned)
            objective = objective + ((row.signal or 0.0) - value) * own.sum() / len(rows)
    objective.backward()
    return {name: value.grad for name, value in matrices.items()}


def means(values: list[float], size: int) -> list[float]:
    return [sum(values[i : i + size]) / size for i in range(0, len(values), size)]

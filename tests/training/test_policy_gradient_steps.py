"""Steps of the policy gradient's trainer against formulas in torch, bare TRL, and each other."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evorun.training.wire import Row

pytest.importorskip("trl")
import steps
import torch
from bare_trl import Completed, train
from steps import Stepped, random_rows, stepped

pytestmark = pytest.mark.slow

Gain = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""A token's part of the objective, of its log-probability, the sampler's, and the advantage."""


def model_under(matrices: Mapping[str, torch.Tensor]) -> Any:
    """Return the tiny model with an adapter of rank 4 and alpha 8, its layers written out."""
    model, _ = steps.tiny()
    for name, module in model.named_modules():
        key = f"base_model.model.{name}.lora_A.weight"
        if key in matrices:
            a, b = matrices[key], matrices[key.replace("lora_A", "lora_B")]
            module.register_forward_hook(lambda _, x, y, a=a, b=b: y + 8 / 4 * (x[0] @ a.T @ b.T))
    return model


def log_probabilities(model: Any, row: Row, temperature: float) -> torch.Tensor:
    """Return those of a row's tokens after its prompt."""
    ids = torch.tensor([[*row.prompt, *row.tokens]])
    every = (model(ids).logits[0, :-1] / temperature).log_softmax(-1).gather(1, ids[0, 1:, None])
    return every[len(row.prompt) - 1 :, 0]


def on_policy(
    rows: Sequence[Row], adapter: Mapping[str, torch.Tensor] | None = None, temperature: float = 1.0
) -> list[Row]:
    """Return the rows with the log-probabilities of the model under an adapter."""
    model = model_under(adapter or {})
    with torch.no_grad():
        every = [log_probabilities(model, row, temperature).tolist() for row in rows]
    return [msgspec.structs.replace(row, logprobs=tuple(own)) for row, own in zip(rows, every, strict=True)]


def gradient(rows: Sequence[Row], gain: Gain, folder: Path, temperature: float = 1.0) -> dict[str, torch.Tensor]:
    """Return that of minus the mean over rows of their learned tokens' gains, with respect to the adapter."""
    before = stepped(folder, rows[:1], training={"learning_rate": 1e-30}).adapter
    matrices = {name: value.clone().requires_grad_() for name, value in before.items()}
    model = model_under(matrices)
    objective = torch.zeros(())
    for row in rows:
        gains = gain(log_probabilities(model, row, temperature), torch.tensor(row.logprobs), row.advantage)
        objective = objective - (gains * torch.tensor(row.learned)).sum() / len(rows)
    objective.backward()
    return {name: value.grad for name, value in matrices.items() if value.grad is not None}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], most: float = 1e-4) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float((found[name] - value).norm()) <= most * float(value.norm()), name
    assert any(bool(value.any()) for value in expected.values())


def test_the_gradient_is_that_of_the_papers_objective(tmp_path: Path) -> None:
    """E-SPL, section 3.1, with 3 system prompts, 2 problems and 5 rollouts of each pair; tools' tokens are masked."""
    rows = random_rows(3 * 2 * 5, tools=True)
    rewards = np.random.default_rng(1).integers(0, 2, 30).astype(float).reshape(6, 5)
    advantages = (rewards - rewards.mean(axis=1, keepdims=True)).ravel()
    given = [msgspec.structs.replace(row, advantage=own) for row, own in zip(on_policy(rows), advantages, strict=True)]
    found = stepped(tmp_path, given)
    expected = gradient(given, lambda own, _, advantage: advantage * own, tmp_path)
    assert_close(found.gradients[0], expected)
    norm = float(sum(value.square().sum() for value in expected.values()) ** 0.5)
    assert found.figures[0]["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert found.figures[0]["sampler_kl"] == pytest.approx(0, abs=1e-6)


def clipped(own: torch.Tensor, sampler: torch.Tensor, advantage: float) -> torch.Tensor:
    ratio = (own - sampler).exp()
    return torch.min(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage)


def cut(own: torch.Tensor, sampler: torch.Tensor, advantage: float) -> torch.Tensor:
    return (own.detach() - sampler).exp().clamp(0.5, 1.5) * advantage * own


@pytest.mark.nightly
def test_the_samplers_distance_grows_with_the_lag_and_is_that_of_the_ratios(tmp_path: Path) -> None:
    """Rollouts by the weights after updates 2, 1 and 0 (lags 0, 1 and 2) are learned from in the third update."""
    first, second, rows = (random_rows(6, seed) for seed in range(3))
    training = {"learning_rate": 0.1}
    trained = (stepped(tmp_path, *made, training=training).adapter for made in ([first], [first, second]))
    adapters: list[dict[str, torch.Tensor]] = [{}, *trained]
    distances = []
    for adapter in reversed(adapters):
        sampled = on_policy(rows, adapter)
        found = stepped(tmp_path, first, second, sampled, training=training).figures[2]["sampler_kl"]
        logs = np.concatenate([row.logprobs for row in on_policy(rows, adapters[2])])
        logs -= np.concatenate([row.logprobs for row in sampled])
        assert found == pytest.approx(float(np.mean(np.exp(logs) - logs - 1)), rel=1e-3, abs=1e-6)
        distances.append(found)
    assert distances[0] < distances[1] < distances[2]


@pytest.mark.parametrize(("loss", "gain", "low", "high"), [("dr_grpo", clipped, 0.2, 0.3), ("cispo", cut, 0.5, 1.5)])
def test_importance_ratios_are_those_to_the_sampler(
    loss: str, gain: Gain, low: float, high: float, tmp_path: Path
) -> None:
    """From the first minibatch on: the sampler's numbers are not the trainer's (another engine, other weights)."""
    rng = np.random.default_rng(2)
    rows = [
        msgspec.structs.replace(row, logprobs=tuple(own + rng.normal(0, 0.3) for own in row.logprobs))
        for row in on_policy(random_rows(12, tools=True), temperature=0.7)
    ]
    found = stepped(tmp_path, rows, loss=loss, clip_low=low, clip_high=high, temperature=0.7)
    # cispo's mean is over tokens
    scale = sum(sum(row.learned) for row in rows) / len(rows) if loss == "cispo" else 1.0
    expected = gradient(rows, gain, tmp_path, temperature=0.7)
    assert_close({name: scale * value for name, value in found.gradients[0].items()}, expected)
    kl, beyond, tokens = 0.0, 0, 0
    exact = on_policy(rows, temperature=0.7)
    for row, own in zip(rows, exact, strict=True):
        for learned, theirs, mine in zip(row.learned, row.logprobs, own.logprobs, strict=True):
            ratio = np.exp(mine - theirs)
            kl += learned * (ratio - 1 - np.log(ratio))
            cuts = ratio > high or ratio < low if loss == "cispo" else ratio > 1.3 if row.advantage > 0 else ratio < 0.8
            beyond += learned and cuts
            tokens += learned
    assert 0 < beyond < tokens
    assert found.figures[0]["sampler_kl"] == pytest.approx(kl / tokens, rel=1e-4)
    assert found.figures[0]["clip_ratio"] == pytest.approx(beyond / tokens)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo", "bnpo", "cispo"])
def test_each_loss_is_trls(kind: str, tmp_path: Path) -> None:
    """With a penalty for divergence from the reference, which the second step's weights are no longer."""
    rewards = np.random.default_rng(3).normal(size=(2, 2, 4))
    advantages = (rewards - rewards.mean(axis=-1, keepdims=True)).reshape(2, 8)
    rewarded = rewards.reshape(2, 8)
    rows = [random_rows(8, seed, tools=True) for seed in range(2)]
    bare = train(
        *steps.tiny(),
        [
            [
                Completed(list(row.prompt), list(row.tokens), list(row.learned), reward)
                for row, reward in zip(batch, of, strict=True)
            ]
            for batch, of in zip(rows, rewarded, strict=True)
        ],
        tmp_path,
        **{"kind": kind, "group": 4, "micro_batch": 8, "beta": 0.1, "seed": 3, "adam_epsilon": 1.0},
        **{"learning_rate": 0.1, "max_grad_norm": 1e9, "epsilon_high": 5.0 if kind == "cispo" else 0.2},
    )
    first, second = (
        [msgspec.structs.replace(row, advantage=float(own)) for row, own in zip(batch, of, strict=True)]
        for batch, of in zip(rows, advantages, strict=True)
    )
    how: dict[str, Any] = {"training": {"learning_rate": 0.1}, "loss": kind, "kl": 0.1}
    how |= {"clip_low": 0.0, "clip_high": 5.0} if kind == "cispo" else {}
    batches = [on_policy(first)]
    batches.append(on_policy(second, stepped(tmp_path, *batches, **how).adapter))
    found = stepped(tmp_path, *batches, **how)
    assert found.figures[1]["kl"] > 1e-3
    for name, expected in (("loss", bare.losses), ("grad_norm", bare.grad_norms)):
        assert [one[name] for one in found.figures] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert_close(found.adapter, bare.adapter)


@pytest.mark.nightly
def test_passes_of_any_size_come_to_the_same(tmp_path: Path) -> None:
    rows = random_rows(7, tools=True)
    whole = stepped(tmp_path, rows, rows)
    for training in ({"micro_batch_tokens": 70}, {"gradient_checkpointing": True, "micro_batch": 4}):
        found = stepped(tmp_path, rows, rows, training=training)
        assert_the_same(found, whole)


def assert_the_same(found: Stepped, expected: Stepped) -> None:
    """Up to rounding."""
    assert len(found.figures) == len(expected.figures)
    for mine, theirs in zip(found.figures, expected.figures, strict=True):
        for name in ("loss", "grad_norm", "entropy", "clip_ratio", "sampler_kl"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert_close(one, other)


def test_minibatches_are_steps_on_parts_of_the_batch(tmp_path: Path) -> None:
    from evorun.training.batches import minibatches

    rows = random_rows(9)
    parts = minibatches(rows, 2, np.random.default_rng((3, 1)))
    assert sorted(map(len, parts)) == [4, 5]
    found, expected = stepped(tmp_path, rows, minibatches=2), stepped(tmp_path, *parts)
    assert_the_same(found, expected)
    assert len(found.figures) == 2


@pytest.mark.nightly  # test_turns_of_tools.py learns from labels that tools gave
def test_tokens_of_tools_are_not_learned(tmp_path: Path) -> None:
    """Whatever log-probabilities they are given."""
    rows = random_rows(4, tools=True)
    other = [
        msgspec.structs.replace(
            row,
            logprobs=tuple(own if learned else -1.0 for own, learned in zip(row.logprobs, row.learned, strict=True)),
        )
        for row in rows
    ]
    assert_the_same(stepped(tmp_path, rows), stepped(tmp_path, other))

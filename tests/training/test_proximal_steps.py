"""Steps of PPO's trainer against TRL's PPOTrainer, formulas in torch, and each other in other divisions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evorun.training.wire import Row

pytest.importorskip("trl")
import ppo_reference
import steps
import torch
from steps import EXACT, Batches, Stepped, random_rows, watched
from test_advantages import generalised

from building import make_job, proximal_policy, training_config
from evorun.training import proximal_policy as trained
from evorun.training.proximal_policy import ProximalTrainer

pytestmark = pytest.mark.slow

SLOWLY = {"learning_rate": 0.05}
"""Larger steps blow rounding up."""

FIGURES = ("loss", "grad_norm", "policy_loss", "value_loss", "entropy", "clip_ratio", "value_clip_ratio")


def make_trainer(
    folder: Path,
    batches: Sequence[Sequence[Row]],
    model: tuple[Any, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    **objective: Any,
) -> ProximalTrainer:
    """Return a trainer whose weights are functions of their names; the base model's are `model`'s."""
    told = proximal_policy(**{"steps": len(batches), **objective})
    job = make_job(folder, folder, training_config(**{**EXACT, **(training or {})}), told)
    trainer = ProximalTrainer(job, told, *(model or steps.tiny()), Batches(batches))  # type: ignore[arg-type]
    for role, part in (("policy", trainer.policy), ("critic", trainer.model.critic)):
        ppo_reference.fill(((name, one) for name, one in part.named_parameters() if one.requires_grad), role)
    return trainer


@pytest.mark.parametrize("case", json.loads((Path(__file__).parent / "ppo_reference.json").read_text()))
def test_advantages_returns_and_losses_are_trls(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four epochs, so of the gradients too; TRL's numbers are kept (scripts/ppo_reference.py)."""
    from transformers import LlamaForCausalLM

    estimated: list[Any] = []

    def estimate(judged: Any, objective: Any) -> Any:
        estimates, figures = estimate_of(judged, objective)
        estimated.extend(zip(judged, estimates, strict=True))
        return estimates, figures

    estimate_of = trained.estimate
    monkeypatch.setattr(trained, "estimate", estimate)
    model = LlamaForCausalLM(ppo_reference.configuration())
    ppo_reference.fill(model.named_parameters(), "base")
    rows = [
        Row(
            prompt=tuple(one["prompt"]),
            tokens=tuple(one["tokens"]),
            learned=(True,) * len(one["tokens"]),
            signal=one["reward"],
            logprobs=tuple(one["logprobs"]),
        )
        for one in case["rows"]
    ]
    optimiser = ppo_reference.OPTIMISER
    training = {"learning_rate": optimiser["learning_rate"], "epsilon": optimiser["adam_epsilon"]}
    objective = {**case["settings"], "epochs": ppo_reference.EPOCHS, "score_at": "after"}
    found = watched(make_trainer(tmp_path, [rows], (model, ppo_reference.tokenizer()), training, **objective))
    of_reward = {one["reward"]: one for one in case["rows"]}
    assert len(estimated) == len(of_reward) == len(rows)
    for judged, own in estimated:
        assert own.advantages == pytest.approx(of_reward[judged.reward]["advantages"], abs=1e-5)
        assert own.returns == pytest.approx(of_reward[judged.reward]["returns"], abs=1e-5)
    for name in ("policy_loss", "value_loss", "clip_ratio", "value_clip_ratio"):
        assert [one[name] for one in found.figures] == pytest.approx(case[name], abs=1e-5), name


def plain(trainer: ProximalTrainer) -> Any:
    """Return a function of a row that gives log-probabilities, reference ones, values, and the weights behind them."""
    weights = {
        name: one.detach().clone().requires_grad_()
        for name, one in trainer.model.named_parameters()
        if one.requires_grad
    }

    def under(prefix: str) -> Any:
        model, _ = steps.tiny()
        for name, module in model.named_modules():
            key = f"{prefix}.{name.removeprefix('model.') if 'critic' in prefix else name}.lora_A.default.weight"
            if key in weights:
                a, b = weights[key], weights[key.replace("lora_A", "lora_B")]
                module.register_forward_hook(lambda _, x, y, a=a, b=b: y + 8 / 4 * (x[0] @ a.T @ b.T))
        return model

    policy, critic = under("policy.base_model.model"), under("critic.decoder.base_model.model")
    reference, _ = steps.tiny()

    def judge(row: Row) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        at = len(row.prompt) + np.flatnonzero(row.learned) - 1

        def logprobs(model: Any) -> torch.Tensor:
            return model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[at, 0]

        hidden = critic.model(ids).last_hidden_state[0, at]
        return logprobs(policy), logprobs(reference).detach(), hidden @ weights["critic.head.weight"][0]

    return judge, weights


def test_the_gradient_is_that_of_the_formulas_also_where_tools_answer_in_between(tmp_path: Path) -> None:
    """Row by row without padding, the sampler's policy another than the trainer's; advantages by a loop over tokens.

    The rows end with the end-of-sequence token, which is the padding token too, and learned like any other.
    """
    _, tokenizer = steps.tiny()
    end = tokenizer.eos_token_id
    assert end == tokenizer.pad_token_id
    rows = [msgspec.structs.replace(row, tokens=(*row.tokens[:-1], end)) for row in random_rows(9, tools=True)]
    assert any(row.learned[-1] for row in rows)
    settings: dict[str, Any] = {"kl": 0.1, "gamma": 0.95, "value_clip": None}
    judge, weights = plain(make_trainer(tmp_path, [rows], **settings))
    rng = np.random.default_rng(2)
    seen, given = [judge(row) for row in rows], []
    for row, (own, *_) in zip(rows, seen, strict=True):
        drawn = iter((own.detach().numpy() + rng.normal(0, 0.3, len(own))).tolist())
        given.append(msgspec.structs.replace(row, logprobs=tuple(next(drawn) if own else 0.0 for own in row.learned)))
    raw, returns = [], []
    for row, (_, reference, values) in zip(given, seen, strict=True):
        old = np.array(row.logprobs)[np.flatnonzero(row.learned)]
        rewards = -0.1 * (old - reference.numpy())
        rewards[-1] += row.signal
        raw.append(generalised(rewards.tolist(), values.tolist(), 0.95, 0.95))
        returns.append(torch.tensor(raw[-1]) + values.detach())
    every = np.concatenate(raw)
    tokens, loss, gains = len(every), torch.zeros(()), []
    for row, (own, _, values), of_tokens, of_states in zip(given, seen, raw, returns, strict=True):
        ratio = (
            own - torch.tensor([each for each, is_own in zip(row.logprobs, row.learned, strict=True) if is_own])
        ).exp()
        advantage = (torch.tensor(of_tokens) - every.mean()) / every.std(ddof=1)
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = loss + (-gain + 0.1 * 0.5 * (values - of_states) ** 2).sum() / tokens
        gains += (gain < ratio * advantage).tolist()
    loss.backward()

    found = watched(make_trainer(tmp_path, [given], **settings))
    assert found.figures[0]["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert 0 < found.figures[0]["clip_ratio"] == pytest.approx(np.mean(gains))
    for name, one in weights.items():
        mine = found.gradients[0][steps.named(name)]
        assert float((mine - one.grad).norm()) <= 1e-4 * float(one.grad.norm()), name


def test_passes_of_any_size_and_either_critic_come_to_the_same(tmp_path: Path) -> None:
    """In minibatches, whose rows are drawn anew in each epoch."""
    several: dict[str, Any] = {"epochs": 2, "minibatches": 2, "score_at": "after"}
    small = {"micro_batch_tokens": 70, "gradient_checkpointing": True}
    rows = random_rows(7, tools=True)
    whole = watched(make_trainer(tmp_path, [rows], training=SLOWLY, **several))
    parts = watched(make_trainer(tmp_path, [rows], training=SLOWLY | small, critic="model", **several))
    assert_the_same(parts, whole)
    assert len(whole.figures) == 4
    assert whole.figures[2]["loss"] != whole.figures[0]["loss"]


def assert_the_same(found: Stepped, expected: Stepped) -> None:
    """Up to rounding."""
    assert len(found.figures) == len(expected.figures)
    for mine, theirs in zip(found.figures, expected.figures, strict=True):
        for name in FIGURES:
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-5), name
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert float((one[name] - value).norm()) <= 1e-3 * float(value.norm()) + 1e-6, name

"""Steps on all weights, with a frozen copy as the reference policy, against plain forward and backward passes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evorun.training.wire import Row

pytest.importorskip("trl")
import steps
import torch
from steps import Batches, random_rows, watched
from test_advantages import generalised

from building import make_job, policy_gradient, proximal_policy, training_config
from evorun.training.policy_gradient import PolicyGradientTrainer
from evorun.training.proximal_policy import ProximalTrainer

pytestmark = pytest.mark.slow

TEMPERATURE, KL = 0.7, 0.1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model whose weights are the reference policy's."""
    folder = tmp_path_factory.mktemp("base")
    steps.tiny()[0].save_pretrained(folder)
    return folder


def moved() -> tuple[Any, Any]:
    """Return the model as some updates have left it: no longer the reference policy."""
    model, tokenizer = steps.tiny()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=noise)
    return model, tokenizer


def logprobs(model: Any, row: Row) -> torch.Tensor:
    """Return the log-probabilities of a row's learned tokens, without padding and TRL."""
    ids = torch.tensor([[*row.prompt, *row.tokens]])
    every = (model(ids).logits[0, :-1] / TEMPERATURE).log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return every[len(row.prompt) - 1 :][list(row.learned)]


def sampled(rows: list[Row], model: Any) -> list[Row]:
    """Return the rows with log-probabilities of a sampler that is near the model, but not the model."""
    rng = np.random.default_rng(2)
    given = []
    for row in rows:
        with torch.no_grad():
            own = iter((logprobs(model, row) + torch.tensor(rng.normal(0, 0.3, sum(row.learned)))).tolist())
        given.append(msgspec.structs.replace(row, logprobs=tuple(next(own) if mine else 0.0 for mine in row.learned)))
    return given


def sampler_of(row: Row) -> torch.Tensor:
    return torch.tensor([own for own, learned in zip(row.logprobs, row.learned, strict=True) if learned])


def assert_gradients(found: dict[str, torch.Tensor], expected: Iterator[tuple[str, Any]], prefix: str = "") -> None:
    for name, weight in expected:
        mine = found[f"{prefix}{name}"]
        assert float(weight.grad.norm()) > 0, name
        assert float((mine - weight.grad).norm()) <= 1e-4 * float(weight.grad.norm()), name


@pytest.mark.parametrize("reference", [pytest.param("device", marks=pytest.mark.nightly), "cpu"])
def test_a_step_of_grpo_on_all_weights_is_that_of_plain_torch(reference: str, base: Path, tmp_path: Path) -> None:
    model, _ = moved()
    frozen, _ = steps.tiny()
    rows = sampled(random_rows(7, tools=True), model)
    objective, kl, tokens = torch.zeros(()), 0.0, 0
    for row in rows:
        own = logprobs(model, row)
        with torch.no_grad():
            towards = logprobs(frozen, row)
        ratio = (own - sampler_of(row)).exp()
        gain = torch.minimum(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
        divergence = ratio * ((towards - own).exp() - (towards - own) - 1)
        objective = objective + (gain - KL * divergence).sum() / len(rows)
        kl, tokens = kl + divergence.sum().item(), tokens + len(own)
    (-objective).backward()

    training = training_config(**steps.EXACT, weights="full", reference=reference, micro_batch_tokens=90)
    told = policy_gradient(steps=1, kl=KL, temperature=TEMPERATURE)
    batches: Any = Batches([rows])
    found = watched(PolicyGradientTrainer(make_job(base, tmp_path, training, told), told, *moved(), batches))
    assert_gradients(found.gradients[0], model.named_parameters())
    assert found.figures[0]["kl"] == pytest.approx(kl / tokens, rel=1e-4)
    assert kl / tokens > 0.01
    assert found.figures[0]["loss"] == pytest.approx(-objective.item(), rel=1e-4)


def test_a_step_of_ppo_on_all_weights_is_that_of_plain_torch(base: Path, tmp_path: Path) -> None:
    """The critic is another copy of the model, with a value head."""
    model, _ = moved()
    decoder = moved()[0].model
    frozen, _ = steps.tiny()
    rows = sampled(random_rows(7, tools=True), model)
    head = torch.full((1, 16), 0.03, requires_grad=True)
    advantages, returns, every = [], [], []
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        at = len(row.prompt) + np.flatnonzero(row.learned) - 1
        values = (decoder(ids).last_hidden_state[0, at] @ head.T)[:, 0]
        with torch.no_grad():
            rewards = (-KL * (sampler_of(row) - logprobs(frozen, row))).tolist()
        rewards[-1] += row.reward
        advantages.append(generalised(rewards, values.tolist(), 0.95, 0.95))
        returns.append(torch.tensor(advantages[-1]) + values.detach())
        every.append(values)
    whole = np.concatenate(advantages)
    loss = torch.zeros(())
    for row, raw, of_states, values in zip(rows, advantages, returns, every, strict=True):
        advantage = (torch.tensor(raw) - whole.mean()) / whole.std(ddof=1)
        ratio = (logprobs(model, row) - sampler_of(row)).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = loss + (-gain + 0.1 * 0.5 * (values - of_states) ** 2).sum() / len(whole)
    loss.backward()

    training = training_config(**steps.EXACT, weights="full", micro_batch_tokens=90)
    settings: dict[str, Any] = {"kl": KL, "gamma": 0.95, "value_clip": None, "temperature": TEMPERATURE}
    told = proximal_policy(steps=1, critic="full", **settings)
    batches: Any = Batches([rows])
    trainer = ProximalTrainer(make_job(base, tmp_path, training, told), told, *moved(), batches)
    with torch.no_grad():
        trainer.model.critic.head.weight.fill_(0.03)
    found = watched(trainer)
    assert_gradients(found.gradients[0], model.named_parameters(), "policy.")
    assert_gradients(found.gradients[0], iter([("weight", head)]), "critic.head.")
    assert_gradients(found.gradients[0], decoder.named_parameters(), "critic.decoder.")
    assert found.figures[0]["loss"] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize(("kl", "weights"), [(0.0, "full"), (KL, "lora")])
def test_no_copy_is_loaded_where_nothing_needs_one(kl: float, weights: str, base: Path, tmp_path: Path) -> None:
    told = policy_gradient(steps=1, kl=kl)
    job = make_job(base, tmp_path, training_config(**steps.EXACT, weights=weights), told)
    batches: Any = Batches([random_rows(3)])
    trainer = PolicyGradientTrainer(job, told, *moved(), batches)
    watched(trainer)
    assert trainer.reference._copy is None
    assert trainer.ref_model is None

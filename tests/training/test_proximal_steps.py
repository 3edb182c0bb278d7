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
from evorun.training.critic import Critic
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
    changed: int | None = None,
    **objective: Any,
) -> ProximalTrainer:
    """Return a trainer whose weights are functions of their names; the base model's are `model`'s.

    changed: see `Batches`.
    """
    told = proximal_policy(**{"steps": len(batches), **objective})
    job = make_job(folder, folder, training_config(**{**EXACT, **(training or {})}), told)
    trainer = ProximalTrainer(job, told, *(model or steps.tiny()), Batches(batches, changed))  # type: ignore[arg-type]
    for role, part in (("policy", trainer.policy), ("critic", trainer.model.critic)):
        ppo_reference.fill(((name, one) for name, one in part.named_parameters() if one.requires_grad), role)
    return trainer


ESTIMATED_BY_K1, BY_K3 = json.loads((Path(__file__).parent / "ppo_reference.json").read_text())


# The gradient of the formulas, below, has k1, too.
@pytest.mark.parametrize("case", [pytest.param(ESTIMATED_BY_K1, marks=pytest.mark.nightly), BY_K3])
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
            reward=one["reward"],
            advantage=None,
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


def plain(trainer: ProximalTrainer, temperature: float) -> Any:
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
    own = "critic.decoder."  # of a critic that is trained whole
    whole = {
        name.removeprefix(own): one for name, one in weights.items() if name.startswith(own) and "lora" not in name
    }

    def judge(row: Row) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids = torch.tensor([[*row.prompt, *row.tokens]])
        at = len(row.prompt) + np.flatnonzero(row.learned) - 1

        def logprobs(model: Any) -> torch.Tensor:
            return (model(ids).logits[0, :-1] / temperature).log_softmax(-1).gather(1, ids[0, 1:, None])[at, 0]

        hidden = torch.func.functional_call(critic.model, whole, (ids,)).last_hidden_state[0, at]
        return logprobs(policy), logprobs(reference).detach(), hidden @ weights["critic.head.weight"][0]

    return judge, weights


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("critic", "targets", "temperature"),
    [("head", ["all-linear"], 0.7), ("full", ["all-linear", "lm_head"], 0.7), ("head", ["all-linear"], 1.0)],
)
def test_the_gradient_is_that_of_the_formulas_also_where_tools_answer_in_between(
    critic: str, targets: list[str], temperature: float, tmp_path: Path
) -> None:
    """Row by row without padding, the sampler's policy another than the trainer's; advantages by a loop over tokens.

    Policy and reference policy are both taken at the sampling temperature.
    The rows end with the end-of-sequence token, which is the padding token too, and learned like any other.
    """
    _, tokenizer = steps.tiny()
    end = tokenizer.eos_token_id
    assert end == tokenizer.pad_token_id
    rows = [msgspec.structs.replace(row, tokens=(*row.tokens[:-1], end)) for row in random_rows(9, tools=True)]
    assert any(row.learned[-1] for row in rows)
    training = {"target_modules": targets}
    sampled: dict[str, Any] = {"training": training, "temperature": temperature}
    settings = {**sampled, "critic": critic, "kl": 0.1, "gamma": 0.95, "value_clip": None}
    judge, weights = plain(make_trainer(tmp_path, [rows], **settings), temperature)
    rng = np.random.default_rng(2)
    seen, given = [judge(row) for row in rows], []
    for row, (own, *_) in zip(rows, seen, strict=True):
        drawn = iter((own.detach().numpy() + rng.normal(0, 0.3, len(own))).tolist())
        given.append(msgspec.structs.replace(row, logprobs=tuple(next(drawn) if own else 0.0 for own in row.learned)))
    raw, returns = [], []
    for row, (_, reference, values) in zip(given, seen, strict=True):
        old = np.array(row.logprobs)[np.flatnonzero(row.learned)]
        rewards = -0.1 * (old - reference.numpy())
        rewards[-1] += row.reward
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

    silent = msgspec.structs.replace(given[0], learned=(False,) * len(given[0].tokens))
    trainer = make_trainer(tmp_path, [[silent, *given]], **settings)
    found = watched(trainer)
    assert found.figures[0]["loss"] == pytest.approx(loss.item(), abs=1e-5)
    whitened = [(own - every.mean()) / every.std(ddof=1) for own in raw]
    assert trainer.advantages[0] is None
    assert trainer.advantages[1:] == [pytest.approx((own.mean(), own.std()), abs=1e-5) for own in whitened]
    assert 0 < found.figures[0]["clip_ratio"] == pytest.approx(np.mean(gains))
    assert ("critic.decoder.embed_tokens.weight" in weights) == (critic == "full")
    assert any("lm_head" in name for name in weights) == ("lm_head" in targets)
    for name, one in weights.items():
        mine = found.gradients[0][steps.named(name)]
        assert float((mine - one.grad).norm()) <= 1e-4 * float(one.grad.norm()), name


@pytest.mark.nightly
def test_passes_of_any_size_and_either_critic_come_to_the_same(tmp_path: Path) -> None:
    """In minibatches, whose rows are drawn anew in each epoch."""
    several: dict[str, Any] = {"epochs": 2, "minibatches": 2, "score_at": "after"}
    small = {"micro_batch_tokens": 70, "gradient_checkpointing": True}
    rows = random_rows(5, tools=True)
    whole = watched(make_trainer(tmp_path, [rows], training=SLOWLY, **several))
    parts = watched(make_trainer(tmp_path, [rows], training=SLOWLY | small, critic="model", **several))
    assert_the_same(parts, whole)
    assert len(whole.figures) == 4
    assert whole.figures[2]["loss"] != whole.figures[0]["loss"]


@pytest.mark.nightly
def test_the_learning_rate_changes_by_batch_where_it_is_told_to(tmp_path: Path) -> None:
    """Two minibatches are two steps of the optimiser."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
            rates.append(optimizer.param_groups[0]["lr"])

    found = {}
    for by in ("batch", "optimiser_step"):
        rates: list[float] = []
        training = {"schedule": "linear", "schedule_by": by, "learning_rate": 0.06}
        batches = [random_rows(2, seed) for seed in (1, 2)]
        trainer = make_trainer(tmp_path / by, batches, training=training, epochs=1, minibatches=2)
        trainer.add_callback(Watch())
        watched(trainer)
        found[by] = rates
    assert found["batch"] == pytest.approx([0.06] * 2 + [0.03] * 2)
    assert found["optimiser_step"] == pytest.approx([0.015 * left for left in range(4, 0, -1)])


def test_a_critic_that_is_trained_whole_has_weights_of_its_own_in_float32(tmp_path: Path) -> None:
    """Beside a policy in bfloat16, in which a step of 3e-6 is lost."""
    base = steps.tiny()[0].bfloat16()
    critic = Critic(make_job(tmp_path, tmp_path, training_config(), proximal_policy()), base, kind="full", popart=None)
    trained = [one for one in critic.parameters() if one.requires_grad]
    width, count = 16, sum(one.numel() for one in base.model.parameters())
    assert sum(one.numel() for one in trained) == count + width
    assert {one.dtype for one in trained} == {torch.float32}
    assert {one.dtype for one in base.parameters()} == {torch.bfloat16}
    assert not {one.data_ptr() for one in trained} & {one.data_ptr() for one in base.parameters()}


@pytest.mark.nightly  # test_value_head.py has the head's values
def test_popart_makes_steps_that_the_scale_of_rewards_does_not_change(tmp_path: Path) -> None:
    """But for the divergence in them, which is left out here; a checkpoint keeps the scale."""
    batches = [random_rows(6, seed) for seed in (1, 2)]
    larger = [[msgspec.structs.replace(row, reward=24 * row.reward) for row in rows] for rows in batches]
    found = {}
    for name, given, popart in (("one", batches, 0.5), ("many", larger, 0.5), ("plain", larger, None)):
        trainer = make_trainer(tmp_path / name, given, training=SLOWLY, kl=0.0, popart=popart)
        trainer.model.critic.head.reset()
        found[name] = (watched(trainer), trainer.model.critic)
    assert_the_same(found["many"][0], found["one"][0])
    assert found["plain"][0].figures[0]["value_loss"] > 10 * found["many"][0].figures[0]["value_loss"]
    head = found["many"][1].head
    assert head.scale == pytest.approx(24 * found["one"][1].head.scale, rel=1e-4)
    found["many"][1].save(tmp_path)
    found["one"][1].load(tmp_path)
    assert (found["one"][1].head.scale, found["one"][1].head.mean) == (head.scale, head.mean)


def test_a_critic_starts_again_where_what_rewards_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[float] = []

    def estimate(judged: Any, objective: Any) -> Any:
        known.append(max(float(np.abs(one.values).max()) for one in judged))
        return estimate_of(judged, objective)

    estimate_of = trained.estimate
    monkeypatch.setattr(trained, "estimate", estimate)
    batches = [random_rows(4, seed) for seed in (1, 2, 3)]
    for setting in (True, False):
        trainer = make_trainer(tmp_path / str(setting), batches, changed=2, reset_critic=setting)
        watched(trainer)
        steps_of_adam = {float(trainer.optimizer.state[one]["step"]) for one in trainer.model.critic.head.parameters()}
        assert steps_of_adam == {2.0 if setting else 3.0}
    first, afresh, later, *kept = known
    assert first > 0 == afresh
    assert later > 0
    assert min(kept) > 0


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

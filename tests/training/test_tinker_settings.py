"""Settings of a run that a trainer on Tinker's API can follow, without its package and without a server."""

from pathlib import Path
from typing import Any

import pytest

from building import composed, training_config
from evorun.cli.doctor import _tinker
from evorun.errors import ConfigError
from evorun.models.tinker.engine import TinkerConfig
from evorun.runner.gpu_demands import list_demands
from evorun.runner.plans import make_plan
from evorun.runner.pricing import find_rates, require_prices
from evorun.runner.requirements import require_parts
from evorun.runner.settings import check
from evorun.runner.training_runs import serving
from evorun.runs.prices import DOLLAR, TokenPrice
from evorun.training.tinker.schedule import learning_rate

TINKER = ("training=tinker", "engine=tinker")
ESPL = ("method=espl", "task=aime", "model=deepseek_v3_1", "training=tinker")


def test_espl_on_its_own_model_needs_no_engine_named_and_no_gpu() -> None:
    config = check(composed(*ESPL, "training.base_url=http://host:8000"))
    assert isinstance(config.engine, TinkerConfig)
    served = serving(config)
    assert isinstance(served, TinkerConfig)
    assert served.base_url == "http://host:8000"
    assert list_demands(config, []) == []
    assert config.training is not None
    assert config.training.target_modules == ["all-linear", "lm_head"]  # as the authors trained


@pytest.mark.parametrize("words", ["method=sft method.data=x.jsonl", "method=laft teacher_engine=server"])
def test_a_fine_tuning_may_adapt_the_output_layer_there(words: str) -> None:
    """Here it may not: TRL's loss ignores such an adapter."""
    config = check(composed(*words.split(), "task=sudoku", "model=local", "model.id=Qwen/Qwen3-8B", *TINKER))
    assert isinstance(config.engine, TinkerConfig)
    assert config.raw["training"]["target_modules"] == ["all-linear", "lm_head"]


REFUSED = {
    "engine=vllm": r"engine=vllm: expected engine=tinker with training.backend=tinker",
    "training.weights=full": r"training.weights: expected lora .*got full",
    "training.dropout=0.1": r"training.dropout: expected 0 .*got 0.1",
    "training.alpha=16": r"training.alpha: expected 32 .*got 16",
    "training.precision=bfloat16": r"training.precision: expected auto .*got bfloat16",
    "training.gradient_checkpointing=true": r"training.gradient_checkpointing: expected null .*got True",
    "training.num_processes=2": r"training.num_processes: expected null .*got 2",
    "training.devices=[0]": r"training.devices: expected null .*got \[0\]",
    "training.target_modules=[q_proj]": r"training.target_modules: expected \[all-linear\] or .*got \[q_proj\]",
    "method.temperature=0.7": r"method.temperature: expected 1 .*got 0.7",
    "model.adapter=folder": r"model=deepseek_v3_1: expected one of the server's models, without model.adapter",
    "method=ppo": r"training.backend=tinker: expected policy gradients .*got PPO, whose critic",
    "training=policy_gradient engine=tinker model=qwen2_5_7b": r"engine=tinker: takes no adapters.*training=tinker",
    "training.base_url=host": r"training.base_url: expected http",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused_names_its_key(change: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[change]) as refused:
        check(composed(*ESPL, *change.split()))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("schedule", "warmup", "by"),
    [
        ("constant", 0, "optimiser_step"),
        ("constant_with_warmup", 3, "optimiser_step"),
        ("linear", 2, "optimiser_step"),
        ("cosine", 2, "batch"),
    ],
)
def test_learning_rates_are_transformers(schedule: str, warmup: int, by: str) -> None:
    import torch
    from transformers import get_scheduler

    training = training_config(learning_rate=0.5, schedule=schedule, warmup_steps=warmup, schedule_by=by)
    steps, per_batch = 12, 2
    per_rate = per_batch if by == "batch" else 1
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    own: Any = get_scheduler(schedule, optimiser, num_warmup_steps=warmup, num_training_steps=steps // per_rate)
    [factor] = own.lr_lambdas
    expected = [0.5 * factor(step // per_rate) for step in range(steps)]
    assert [learning_rate(training, step, steps, per_batch) for step in range(steps)] == pytest.approx(expected)


def test_package_and_key_are_asked_for_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from evorun.models.tinker import service

    config = check(composed(*ESPL))
    monkeypatch.setattr(service, "find_missing_packages", lambda names: names)
    with pytest.raises(Exception, match=r"package tinker.*pip install 'evorun\[tinker\]'"):
        require_parts(config)
    assert not _tinker().ready
    monkeypatch.setattr(service, "find_missing_packages", lambda names: [])
    monkeypatch.setenv("TINKER_API_KEY", "sk-other")
    with pytest.raises(Exception, match="TINKER_API_KEY") as refused:
        require_parts(config)
    assert "sk-other" not in str(refused.value)
    monkeypatch.setenv("TINKER_API_KEY", "tml-any")
    require_parts(config)
    assert _tinker().ready


def test_tinkers_own_prices_hold_at_its_own_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    here = find_rates(check(composed(*ESPL)))["policy"]
    assert isinstance(here, TokenPrice)
    assert here.of_training(1_000_000, 0) == round(3.718 * DOLLAR)
    assert find_rates(check(composed(*ESPL, "training.base_url=http://host:8000")))["policy"] == "unknown"
    monkeypatch.setenv("TINKER_BASE_URL", "http://host:8000")
    assert find_rates(check(composed(*ESPL)))["policy"] == "unknown"


def test_a_limit_on_the_price_is_refused() -> None:
    config = check(composed(*ESPL, "budget.price=5"))
    with pytest.raises(ConfigError, match=r"^budget: expected no limit on the price with training.backend=tinker"):
        require_prices(config, find_rates(config))


@pytest.mark.parametrize(
    ("kl", "per_token"), [pytest.param(0.0, 0.44, marks=pytest.mark.nightly), (0.01, 0.44 + 0.195)]
)
def test_a_plan_bounds_the_price_of_trained_tokens(kl: float, per_token: float, tmp_path: Path) -> None:
    """With a divergence the base model scores each rollout, too."""
    words = ("method=grpo", "task=arithmetic", "model=local", "model.id=Qwen/Qwen3-8B", f"method.kl={kl}")
    [arm] = make_plan([composed(*words, *TINKER)], tmp_path).arms
    [rollout] = [role for role in arm.roles if role.role == "rollout"]
    assert arm.training is not None
    assert rollout.prompt_tokens is not None
    tokens = rollout.prompt_tokens + rollout.completion_tokens
    assert arm.training.trained_tokens == tokens
    assert arm.training.price == pytest.approx(tokens * per_token / 1e6)
    assert arm.price == pytest.approx(arm.training.price + sum(role.price or 0.0 for role in arm.roles))

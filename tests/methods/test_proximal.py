"""The settings of PPO: what is refused, and the rewards that its critic learns from."""

import json
from pathlib import Path
from typing import Any

import pytest

from building import composed, policy_gradient, proximal_policy, training_config
from evorun.errors import ConfigError
from evorun.methods.learning.updates import Proximal
from evorun.models.base import Completion, Reply
from evorun.rollouts.episodes import Asked, Episode
from evorun.rollouts.rewards import Reward
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt
from evorun.training.objectives import ProximalSettings
from evorun.training.requirements import require_fitting

DEFAULTS: dict[str, Any] = {
    **{"epochs": 4, "minibatches": 1, "kl": 0.05, "kl_estimator": "k1", "gamma": 1.0, "gae_lambda": 0.95},
    **{"clip": 0.2, "value_clip": 0.2, "value_weight": 0.1, "whiten": True, "score_at": "last", "critic": "model"},
    **{"popart": None, "reset_critic": False, "missing_eos_penalty": None},
}


def episode(finish_reason: Any, reward: float | None = 1.0, error: str | None = None) -> Episode:
    reply = Reply(
        completions=(Completion(text="a", finish_reason=finish_reason, tokens=1),),
        prompt_tokens=1,
        seconds=0.0,
        error=error,
    )
    asked = Asked(Problem(id="p", stratum="", data={}), Prompt(messages=()))
    return Episode(asked, (reply,), Response(text="a", answer="a"), Reward(reward), 0, "")


def test_an_episode_without_an_end_of_its_own_is_penalised_once() -> None:
    played = [episode("stop"), episode("length"), episode("overlong", 0.5), episode("rejected", None, "too long")]
    for penalty, rewards in ((2.0, [1.0, -1.0, -1.5, None]), (None, [1.0, 1.0, 0.5, None])):
        settings = ProximalSettings(**{**DEFAULTS, "missing_eos_penalty": penalty})
        assert Proximal(settings, temperature=1.0, baseline_group=1).rewards(played) == rewards


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("epochs", 0),
            ("minibatches", 0),
            ("kl", -0.1),
            ("kl_estimator", "k2"),
            ("gamma", 1.1),
            ("gae_lambda", -0.1),
        ),
        *(("clip", 0.0), ("value_clip", 0.0), ("value_weight", -1.0), ("score_at", "first"), ("critic", "none")),
        *(("popart", 0.0), ("popart", 1.1), ("missing_eos_penalty", 0.0)),
    ],
)
def test_values_out_of_range_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^method.{key}: expected"):
        ProximalSettings(**{**DEFAULTS, key: value})


def test_dropout_is_refused_before_anything_loads() -> None:
    words = ("task=arithmetic", "engine=vllm", "model=qwen2_5_7b", "training.dropout=0.1")
    for method in ("method=ppo", "method=mpo"):
        with pytest.raises(ConfigError, match=r"^training\.dropout: expected 0 with PPO"):
            check(composed(method, *words))
    check(composed("method=grpo", *words))


@pytest.mark.parametrize(
    ("settings", "sharded"),
    [
        ("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}", True),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}", True),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: FILE}", True),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}", False),
        ("distributed_type: MULTI_GPU", False),
        ("[what accelerate refuses", False),
    ],
)
def test_sharded_weights_are_refused_before_anything_loads(settings: str, sharded: bool, tmp_path: Path) -> None:
    (tmp_path / "stage3.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    file = tmp_path / "accelerate.yaml"
    file.write_text(settings.replace("FILE", str(tmp_path / "stage3.json")))
    training = training_config(accelerate_config=str(file))
    require_fitting(policy_gradient(), training)
    if not sharded:
        require_fitting(proximal_policy(), training)
        return
    with pytest.raises(ConfigError, match=r"^training\.accelerate_config: expected training\.shard=fsdp2"):
        require_fitting(proximal_policy(), training)


@pytest.mark.parametrize("changes", [{"popart": 0.5}, {"reset_critic": True}])
def test_a_value_head_that_deepspeed_would_set_back_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text("distributed_type: MULTI_GPU")
    training = training_config(accelerate_config=str(file))
    require_fitting(proximal_policy(**changes), training)
    file.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}")
    with pytest.raises(ConfigError, match="DeepSpeed's optimiser copies the value head"):
        require_fitting(proximal_policy(**changes), training)

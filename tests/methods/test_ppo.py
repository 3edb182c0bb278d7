"""PPO with a scripted model and a policy that only takes notes: its trainer is told rewards, of single episodes."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from building import make_config, make_method
from evorun.errors import ConfigError
from evorun.methods.ppo import PpoConfig
from evorun.methods.proximal import ProximalSettings
from evorun.runs.reading import read_rollouts
from evorun.training.wire import ProximalPolicy
from learning_fixture import train
from method_fixture import Ask

SINGLE: dict[str, Any] = {"method": "ppo", "problems_per_step": 5, "group": 1}


async def test_rows_have_the_rewards_of_single_episodes(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        return ("right", "wrong", "?", "right...", None)[ask.index]

    trained = await train(tmp_path, script, steps=1, missing_eos_penalty=0.5, format_reward=0.25, **SINGLE)
    [batch] = trained.policy.batches
    assert [row.signal for row in batch] == [1.25, 0.25, 0.0, 0.25 - 0.5]
    assert [one.advantage for one in read_rollouts(trained.folder)] == [1.25, 0.25, 0.0, -0.25, None]
    [record] = trained.records("training")
    assert record["figures"]["reward"] == pytest.approx((1.25 + 0.25 + 0 + 0.25) / 4)  # the task's, without the penalty
    assert "equal_groups" not in record["figures"]


async def test_equal_rewards_are_learned_from_and_a_batch_without_any_is_not(tmp_path: Path) -> None:
    """The critic and the divergence from the reference policy have a gradient whatever the rewards are."""
    trained = await train(tmp_path, lambda ask: "right" if ask.step == 1 else None, steps=2, **SINGLE)
    assert [len(batch) for batch in trained.policy.batches] == [5]


def test_what_the_trainer_is_told() -> None:
    told = make_method("ppo", steps=7, temperature=0.5, value_clip=None, critic="head").objective(Path())
    assert isinstance(told, ProximalPolicy)
    assert (told.steps, told.temperature, told.value_clip, told.critic) == (7, 0.5, None, "head")
    assert (told.epochs, told.kl, told.clip, told.gae_lambda, told.value_weight) == (4, 0.05, 0.2, 0.95, 0.1)


CHANGED: dict[str, Any] = {
    **{"epochs": 2, "minibatches": 2, "kl": 0.1, "kl_estimator": "k3", "gamma": 0.9, "gae_lambda": 0.9, "clip": 0.1},
    **{"value_clip": None, "value_weight": 0.5, "whiten": False, "score_at": "after", "critic": "head"},
}


def test_every_field_of_the_trainer_has_an_effect() -> None:
    """The penalty has a test above; the fields of the loop, in test_policy_gradient.py."""
    assert {*CHANGED, "missing_eos_penalty"} == {one.name for one in dataclasses.fields(ProximalSettings)}
    before = make_method("ppo").objective(Path())
    assert [key for key in CHANGED if make_method("ppo", **{key: CHANGED[key]}).objective(Path()) == before] == []
    assert issubclass(PpoConfig, ProximalSettings)


@pytest.mark.parametrize(("field", "value"), [("group", 0), ("epochs", 0), ("steps", 0)])
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^method\.{field}: expected "):
        make_config("method", "ppo", **{field: value})

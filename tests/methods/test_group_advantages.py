"""Advantages within a group, against their definitions."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

from building import make_method
from evorun.errors import ConfigError
from evorun.methods.learning.group_advantages import MAX_BETA, find_beta, weight_entropically
from learning_fixture import train
from method_fixture import Ask

GROUPS = st.lists(st.floats(-3, 3).map(lambda reward: round(reward, 3)), min_size=2, max_size=9)


def divergence(beta: float, rewards: np.ndarray) -> float:
    return float(entropy(softmax(beta * rewards), np.full(len(rewards), 1 / len(rewards))))


@given(GROUPS)
def test_beta_is_where_the_weights_diverge_by_ln_2_or_the_largest_where_they_never_do(group: list[float]) -> None:
    rewards = np.array(group)
    beta = find_beta(rewards)
    tied = int((rewards == rewards.max()).sum())
    if len(group) > 2 * tied:  # of n rewards with k largest, the divergence goes to ln (n / k)
        root = brentq(lambda beta: divergence(beta, rewards) - math.log(2), 0, 1e5, xtol=1e-10)
        assert beta == pytest.approx(root, rel=1e-6)
    elif len(group) < 2 * tied:
        assert beta == MAX_BETA
    assert divergence(beta, rewards) <= math.log(2) + 1e-6


@given(GROUPS, st.sampled_from([None, 0.5, 2.0]))
def test_weights_are_relative_to_the_mean_of_the_others(group: list[float], fixed: float | None) -> None:
    advantages = weight_entropically(group, fixed)
    if len(set(group)) == 1 or (fixed is None and len(group) == 2):
        assert advantages == [0.0] * len(group)
        return
    beta = find_beta(np.array(group)) if fixed is None else fixed
    for at, reward in enumerate(group):
        others = [math.exp(min(700.0, beta * (other - reward))) for i, other in enumerate(group) if i != at]
        assert advantages[at] == pytest.approx(len(others) / sum(others) - 1, rel=1e-6)
    by_reward = [advantage for _, advantage in sorted(zip(group, advantages, strict=True))]
    assert by_reward == pytest.approx(sorted(advantages))


def test_advantages_stay_finite_where_a_weight_has_all() -> None:
    assert all(map(math.isfinite, weight_entropically([0.0, 900.0], 2.0)))
    assert weight_entropically([0.0], 2.0) == [0.0]


@pytest.mark.parametrize("method", ["grpo", "cispo"])
async def test_a_step_learns_from_entropic_advantages_of_the_completions_with_a_reward(
    method: str, tmp_path: Path
) -> None:
    def script(ask: Ask) -> str | None:
        return ("right", "wrong", "?", None, "right", "right", "wrong", "wrong")[ask.index]

    chosen = {"steps": 1, "group": 4, "format_reward": 0.25, "advantage": "entropic"}
    trained = await train(tmp_path / "run", script, method=method, **chosen)
    [batch] = trained.policy.batches
    expected = [*weight_entropically([1.25, 0.25, 0.0], None), 2.0, 2.0, -1.0, -1.0]
    assert [row.advantage for row in batch] == pytest.approx(expected)
    fixed = await train(tmp_path / "fixed", script, method=method, **chosen, entropic_beta=1.5)
    [batch] = fixed.policy.batches
    assert batch[0].advantage == pytest.approx(2 / (math.exp(-1.5) + math.exp(-1.875)) - 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"advantage": "entropic", "group": 2}, "method.group: expected at least 3 with method.advantage=entropic"),
        ({"entropic_beta": 2.0}, "method.entropic_beta: has no effect with method.advantage=mean; leave it null"),
        ({"advantage": "best"}, "method.advantage: expected one of entropic, mean, got"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_method("grpo", **settings)
    make_method("grpo", advantage="entropic", group=2, draws=2, baseline="problem")
    make_method("cispo", advantage="entropic", group=2, entropic_beta=2.0)

"""Advantages against loops over time, and what holds of them whatever the numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import proximal_policy
from evorun.training.advantages import Floats, ScoredEpisode, advantages, estimate, explained_variance, whitened

NUMBERS = st.floats(-100, 100)
SHARES = st.floats(0, 1)


def generalised(rewards: list[float], values: list[float], gamma: float, gae_lambda: float) -> list[float]:
    """Return the advantages of one episode, step by step from its end."""
    after, following, result = 0.0, 0.0, []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * after - value + gamma * gae_lambda * following
        after = value
        result.append(following)
    return result[::-1]


def batch(seed: int) -> list[ScoredEpisode]:
    rng = np.random.default_rng(seed)
    sizes = [5, 1, 8, 3, 8]
    return [ScoredEpisode(rng.normal(), *rng.normal(-2, 1, (3, size)), rng.normal(size=size + 1)) for size in sizes]


@pytest.mark.parametrize("score_at", ["last", "after"])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_a_batch_is_estimated_as_by_a_loop_over_each_episodes_tokens(score_at: Any, estimator: Any) -> None:
    judged = batch(0)
    objective = proximal_policy(
        kl=0.3, kl_estimator=estimator, score_at=score_at, gamma=0.9, gae_lambda=0.8, whiten=False
    )
    estimates, figures = estimate(judged, objective.settings)
    divergences = []
    for one, found in zip(judged, estimates, strict=True):
        ratio = np.exp(one.reference - one.old)
        kl = (-np.log(ratio) if estimator == "k1" else ratio - 1 - np.log(ratio)).tolist()
        rewards, values = [-0.3 * each for each in kl], one.values.tolist()
        if score_at == "after" and len(kl) < 8:  # one more step, without a token
            rewards.append(0.0)
        rewards[-1] += one.reward
        expected = generalised(rewards, values[: len(rewards)], 0.9, 0.8)
        assert found.advantages == pytest.approx(expected[: len(kl)], abs=1e-6)
        assert found.returns == pytest.approx([a + v for a, v in zip(expected, values, strict=False)], abs=1e-6)
        divergences.append(kl)
    assert figures["kl"] == pytest.approx(np.mean(np.concatenate(divergences)))
    assert figures["episode_kl"] == pytest.approx(np.mean([sum(one) for one in divergences]))


def test_whitening_is_over_the_tokens_of_the_whole_batch() -> None:
    raw, _ = estimate(batch(1), proximal_policy(whiten=False, score_at="after").settings)
    found, figures = estimate(batch(1), proximal_policy(whiten=True, score_at="after").settings)
    every = np.concatenate([one.advantages for one in raw])
    assert np.concatenate([one.advantages for one in found]) == pytest.approx(
        (every - every.mean()) / every.std(ddof=1), abs=1e-6
    )
    assert figures["advantage_spread"] == pytest.approx(every.std())
    assert [one.returns.tolist() for one in found] == [one.returns.tolist() for one in raw]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12), SHARES, SHARES)
def test_at_the_ends_of_lambda_an_advantage_is_a_surprise_or_the_whole_return(
    steps: list[tuple[float, float]], gamma: float, gae_lambda: float
) -> None:
    rewards, values = (np.array([column]) for column in zip(*steps, strict=True))
    after = np.append(values[0, 1:], 0.0)
    surprises = rewards[0] + gamma * after - values[0]
    assert advantages(rewards, values, gamma, 0.0)[0] == pytest.approx(surprises, abs=1e-6)
    discounted = [sum(gamma**k * r for k, r in enumerate(rewards[0, t:])) for t in range(len(steps))]
    assert advantages(rewards, values, gamma, 1.0)[0] + values[0] == pytest.approx(discounted, abs=1e-6)
    # What comes after an episode's end changes nothing, in whichever company it is padded.
    wider = [np.pad(each, ((0, 1), (0, 3))) for each in (rewards, values)]
    found = advantages(*wider, gamma, gae_lambda)
    assert found[0, : len(steps)] == pytest.approx(advantages(rewards, values, gamma, gae_lambda)[0], abs=1e-6)
    assert not found[0, len(steps) :].any()


@given(st.lists(NUMBERS, min_size=2, max_size=20), st.floats(0.1, 10), NUMBERS)
def test_whitening_forgets_scale_and_offset_and_keeps_order(values: list[float], scale: float, offset: float) -> None:
    given_values = np.array(values)
    found = whitened(given_values)
    assert found.mean() == pytest.approx(0, abs=1e-6)
    if given_values.std() > 0.1:
        assert found.std(ddof=1) == pytest.approx(1, abs=1e-3)
        assert whitened(scale * given_values + offset) == pytest.approx(found, abs=1e-2)
        assert (np.diff(found[np.argsort(given_values)]) >= 0).all()
    assert np.isfinite(whitened(given_values[:1])).all()


def test_values_that_say_nothing_explain_nothing() -> None:
    returns: Floats = np.array([1.0, 2.0, 4.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.zeros(3), returns) == 0
    assert explained_variance(-returns, returns) == pytest.approx(-3)
    assert explained_variance(returns, np.ones(3)) == 0  # and is a number

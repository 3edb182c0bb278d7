"""A simulated writer: its gradient is that of its log-probability, and its texts say all that is true of them."""

import math

import numpy as np
import pytest

from evorun.errors import ConfigError
from evorun.simulation.loopholes import KINDS, exploit
from evorun.simulation.settings import World
from evorun.simulation.writing import POINTED, VAGUE, Traits, Weights, read_traits

WRITTEN = [Traits(k, len(POINTED) - k, "") for k in range(len(POINTED) + 1)]
EXPLOITS = [Traits(0, 0, kind) for kind in ("language", "title")]
SOME = [Weights(*one, ("language", "title")) for one in ((0.3, (-2.0, -1.0), 0.7), (-1.5, (0.4, -0.6), 1.0))]
EXPLOIT = exploit("language", np.random.default_rng(0))


@pytest.mark.sample(1)
@pytest.mark.parametrize("weights", SOME)
def test_texts_carry_what_they_were_drawn_with_and_are_drawn_as_likely_as_the_log_probability_says(
    weights: Weights,
) -> None:
    rng = np.random.default_rng(0)
    read = [read_traits(weights.write(rng)) for _ in range(4000)]
    assert all(one in EXPLOITS or one.pointed + one.vague == len(POINTED) for one in read)
    chances = [math.comb(len(POINTED), one.pointed) * math.exp(weights.log_probability(one)) for one in WRITTEN]
    chances += [math.exp(weights.log_probability(one)) for one in EXPLOITS]
    assert sum(chances) == pytest.approx(1)
    for one, chance in zip([*WRITTEN, *EXPLOITS], chances, strict=True):
        assert read.count(one) / 4000 == pytest.approx(chance, abs=4 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize("response", [*WRITTEN, *EXPLOITS])
@pytest.mark.parametrize("weights", SOME)
def test_the_gradient_is_that_of_the_log_probability(weights: Weights, response: Traits) -> None:
    def at(*changes: float) -> float:
        quality, *loopholes = np.array([weights.quality, *weights.loopholes]) + np.array(changes)
        return weights._replace(quality=quality, loopholes=tuple(loopholes)).log_probability(response)

    numerical = [(at(*(1e-5 * unit)) - at(*(-1e-5 * unit))) / 2e-5 for unit in np.eye(3)]
    assert weights.gradient(response) == pytest.approx(numerical, abs=1e-6)


def test_an_update_is_a_step_of_reinforce_whatever_the_scale_of_the_rewards() -> None:
    start = Weights(0.0, (-1.0,), 0.8, ("language",))
    texts = [" ".join(POINTED), " ".join(VAGUE), EXPLOIT, "", "Something else."]
    rewards = [0.5, 0.2, 0.9, 7.0, 8.0]  # those of texts that the writer did not write count for nothing
    whitened = (np.array(rewards[:3]) - np.mean(rewards[:3])) / np.std(rewards[:3])
    expected = np.mean(
        [a * np.array(start.gradient(read_traits(text))) for a, text in zip(whitened, texts, strict=False)], axis=0
    )
    after = start.updated(texts, rewards, 0.25)
    changes = [after.quality - start.quality, after.loopholes[0] - start.loopholes[0]]
    assert changes == pytest.approx(0.25 * expected)
    scaled = start.updated(texts, [20 * one - 3 for one in rewards], 0.25)
    assert (scaled.quality, *scaled.loopholes) == pytest.approx((after.quality, *after.loopholes))
    assert after.loopholes > start.loopholes  # since the reward paid for it, and for no other reason
    assert start.updated(texts, [0.5, 0.2, 0.1, 0.0, 0.0], 0.25).loopholes < start.loopholes
    assert start.updated(texts[:3], [1.0, 1.0, 1.0], 0.25) == start
    assert start.updated([], [], 0.25) == start


def test_probabilities_stay_between_0_and_1_however_far_the_weights_are_driven() -> None:
    weights = Weights.initial(World(quality=0.5, quality_limit=1.0, loophole_rate=0.0))
    assert (weights.quality_rate, *weights.loophole_rates) == pytest.approx((0.5, 0.0), abs=1e-8)
    for _ in range(3):
        weights = weights.updated([" ".join(POINTED), " ".join(VAGUE)], [1.0, 0.0], 1e9)
    assert 0.999 < weights.quality_rate < 1
    assert all(map(math.isfinite, weights.gradient(WRITTEN[0])))


@pytest.mark.parametrize("kind", [*KINDS, "all"])
def test_at_first_loopholes_of_each_kind_are_tried_as_often_as_the_setting_says(kind: str) -> None:
    weights = Weights.initial(World(loophole_rate=0.3, loophole_kind=kind))
    assert weights.loophole_rates == pytest.approx((0.06,) * 5 if kind == "all" else (0.3,))
    rng = np.random.default_rng(1)
    found = [read_traits(weights.write(rng)).loophole for _ in range(300)]
    assert set(found) == {"", *weights.kinds}


def test_a_quality_that_cannot_rise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^engine\.quality_limit: expected a number > 0\.7, got 0\.7"):
        World(quality=0.7, quality_limit=0.7)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evorun.runs.statistics import bootstrap_mean, wilson


@given(n=st.integers(1, 2000), share=st.floats(0, 1), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(n: int, share: float, confidence: float) -> None:
    successes = round(share * n)
    expected = binomtest(successes, n).proportion_ci(confidence_level=confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(n=st.integers(1, 5000))
def test_wilson_stays_in_the_unit_interval_and_holds_the_share(n: int) -> None:
    for successes in (0, n // 2, n):
        low, high = wilson(successes, n)
        assert 0 <= low <= successes / n <= high <= 1


def test_wilson_knows_nothing_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, n)


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(120):
        interval = bootstrap_mean(rng.beta(2, 3, size=40).tolist(), rng, resamples=999)
        assert interval is not None
        covered += interval[0] <= 0.4 <= interval[1]
    assert 0.88 <= covered / 120 <= 1.0


def test_bootstrap_is_near_the_normal_interval_of_a_large_sample() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(3, 2, size=2000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    interval = bootstrap_mean(values.tolist(), rng)
    assert interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_bootstrap_repeats_with_its_generator() -> None:
    values = [0.1, 0.4, 0.9, 0.3]
    assert bootstrap_mean(values, np.random.default_rng(5)) == bootstrap_mean(values, np.random.default_rng(5))


def test_bootstrap_of_too_few_or_equal_values() -> None:
    rng = np.random.default_rng(0)
    assert bootstrap_mean([], rng) is None
    assert bootstrap_mean([0.5], rng) is None
    assert bootstrap_mean([0.25, 0.25, 0.25], rng) == (0.25, 0.25)

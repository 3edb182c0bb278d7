import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evorun.runs.statistics import clustered_share, wilson


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


def test_clustered_share_covers_the_true_share_where_clusters_differ() -> None:
    """Problems differ in how decisive their duels are: an interval over duels would be far too narrow."""
    rng = np.random.default_rng(0)
    covered, covered_by_wilson = 0, 0
    for _ in range(120):
        trials = rng.integers(20, 40, size=40)
        successes = rng.binomial(trials, rng.beta(1, 2, size=40))
        interval = clustered_share(successes.tolist(), trials.tolist(), resamples=999)
        assert interval is not None
        covered += interval[0] <= 1 / 3 <= interval[1]
        low, high = wilson(int(successes.sum()), int(trials.sum()))
        covered_by_wilson += low <= 1 / 3 <= high
    assert 0.88 <= covered / 120 <= 1.0
    assert covered_by_wilson / 120 < 0.7


def test_clustered_share_agrees_with_wilson_where_trials_are_independent() -> None:
    rng = np.random.default_rng(1)
    outcomes = rng.random(3000) < 0.3
    interval = clustered_share(outcomes.astype(int).tolist(), [1] * 3000)
    assert interval == pytest.approx(wilson(int(outcomes.sum()), 3000), abs=0.003)


def test_clustered_share_repeats_and_needs_two_clusters() -> None:
    assert clustered_share([1, 2, 0], [3, 4, 5]) == clustered_share([1, 2, 0], [3, 4, 5])
    assert clustered_share([], []) is None
    assert clustered_share([2], [3]) is None
    assert clustered_share([2, 0], [3, 0]) is None

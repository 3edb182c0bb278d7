import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest

from evorun.runs.crossed import crossed_mean
from evorun.runs.schema import Metric
from evorun.runs.statistics import (
    Proportion,
    Spread,
    clustered_mean,
    crossed_interval,
    estimate_spread,
    mean_interval,
    pass_at,
    pooled_share,
    rank_correlation,
    smallest_difference,
    t_interval,
    wilson,
    worst_spread,
)


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


def test_clustered_mean_covers_the_true_share_where_clusters_differ() -> None:
    """Problems differ in how decisive their duels are: an interval over duels would be far too narrow."""
    rng = np.random.default_rng(0)
    covered, covered_by_wilson = 0, 0
    for _ in range(120):
        trials = rng.integers(20, 40, size=40)
        successes = rng.binomial(trials, rng.beta(1, 2, size=40))
        interval = clustered_mean(successes.tolist(), trials.tolist(), resamples=999)
        assert interval is not None
        covered += interval[0] <= 1 / 3 <= interval[1]
        low, high = wilson(int(successes.sum()), int(trials.sum()))
        covered_by_wilson += low <= 1 / 3 <= high
    assert 0.88 <= covered / 120 <= 1.0
    assert covered_by_wilson / 120 < 0.7


def test_clustered_mean_of_few_clusters_covers_the_true_mean() -> None:
    """Plain percentiles cover it in 262 of these 300 data sets, of six clusters each."""
    rng = np.random.default_rng(1)
    covered = 0
    for sums in 3 * rng.normal(size=(300, 6)):
        low, high = clustered_mean(sums.tolist(), [3] * 6, resamples=499) or (1.0, 1.0)
        covered += low <= 0 <= high
    assert 0.92 <= covered / 300 <= 0.98, covered


def test_clustered_mean_agrees_with_wilson_where_trials_are_independent() -> None:
    rng = np.random.default_rng(1)
    outcomes = rng.random(1000) < 0.3
    interval = clustered_mean(outcomes.astype(int).tolist(), [1] * 1000, resamples=2_999)
    assert interval == pytest.approx(wilson(int(outcomes.sum()), 1000), abs=0.005)


def test_clustered_mean_repeats_and_needs_two_clusters() -> None:
    assert clustered_mean([1, 2, 0], [3, 4, 5]) == clustered_mean([1, 2, 0], [3, 4, 5])
    assert clustered_mean([], []) is None
    assert clustered_mean([2], [3]) is None
    assert clustered_mean([2, 0], [3, 0]) is None


def test_a_pooled_share_that_all_clusters_agree_on_has_wilsons_interval_of_the_clusters() -> None:
    for share in (0, 1):
        figure = pooled_share([Proportion(share * n, n) for n in (40, 2, 0, 8)])
        low, high = wilson(3 * share, 3)  # three clusters with trials, however many those are
        assert (figure.value, figure.ci95, figure.n) == (share, (low, high), 50)
    mixed = [Proportion(1, 4), Proportion(3, 4), Proportion(0, 0)]
    assert pooled_share(mixed) == Metric(0.5, clustered_mean([1, 3], [4, 4]), 8)
    assert pooled_share([Proportion(1, 4), Proportion(2, 8)]) == Metric(0.25, None, 12)
    assert pooled_share([]) == Metric(None, None, 0)


def test_clustered_mean_of_amounts_draws_whole_clusters() -> None:
    sums, counts = [61.0, 5.5, 200.0], [1, 1, 2]
    pairs = np.array(list(zip(sums, counts, strict=True)))
    draws = pairs[np.array(list(itertools.product(range(3), repeat=3)))].sum(axis=1)  # all 27
    exact = np.quantile(draws[:, 0] / draws[:, 1], [0.025, 0.975], method="inverted_cdf")
    assert clustered_mean(sums, counts) == pytest.approx(tuple(exact), abs=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("interval", [mean_interval, lambda values: clustered_mean(values, [1] * len(values))])
def test_resamples_are_drawn_a_part_at_a_time(interval: Any) -> None:
    # a thousand of them would be 24 MB and more for 3,000 problems
    values = np.random.default_rng(0).random(3_000).tolist()
    interval(values[:3])  # the imports
    tracemalloc.start()
    try:
        interval(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6


def _bca(values: list[float], confidence: float) -> tuple[float, float]:
    """Efron's interval by its definition, with every draw that there is in place of random ones."""
    n, of = len(values), np.array(values)
    draws = np.sort(of[np.array(list(itertools.product(range(n), repeat=n)), dtype=np.int8)].mean(axis=1))
    centre = of.mean()
    below = (np.mean(draws < centre - 1e-9) + np.mean(draws <= centre + 1e-9)) / 2
    left_out = np.array([np.delete(of, i).mean() for i in range(n)])
    deviations = left_out.mean() - left_out
    acceleration = (deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5)
    bias = stats.norm.ppf(below)
    bounds = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        moved = bias + stats.norm.ppf(tail)
        bounds.append(np.quantile(draws, stats.norm.cdf(bias + moved / (1 - acceleration * moved))))
    return bounds[0], bounds[1]


@pytest.mark.parametrize(
    "values", [[97.5, 88.0, 100.0, 12.25, 63.0, 79.1], [0.0, 0.0, 0.0, 0.0, 2.0, 9.0], [0.1, 0.5, 0.45, 3.0]]
)
def test_the_interval_of_a_mean_is_efrons(values: list[float]) -> None:
    spread = max(values) - min(values)
    assert mean_interval(values) == pytest.approx(_bca(values, 0.95), abs=0.02 * spread)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=12))
@settings(max_examples=25)
def test_the_interval_of_a_mean_stays_among_the_values(values: list[float]) -> None:
    interval = mean_interval(values)
    if max(values) - min(values) <= 1e-9:
        assert interval is None
    else:
        assert interval is not None
        assert min(values) - 1e-9 <= interval[0] <= interval[1] <= max(values) + 1e-9
        assert interval == mean_interval(list(values))


@pytest.mark.nightly
def test_the_interval_of_a_mean_follows_the_skew_and_covers() -> None:
    """Scores like those of the puzzles: most are near the upper bound, some far below."""
    rng = np.random.default_rng(2)
    covered, leaves = 0, 0
    for _ in range(150):
        values = 100 * rng.beta(4, 0.3, size=50)
        interval = mean_interval(values.tolist(), resamples=999)
        assert interval is not None
        covered += interval[0] <= 100 * 4 / 4.3 <= interval[1]
        leaves += interval[1] - values.mean() < values.mean() - interval[0]
    assert 0.87 <= covered / 150 <= 1.0
    assert leaves > 140  # longer on the side of the tail


def test_values_that_are_alike_have_no_interval() -> None:
    assert mean_interval([]) is None
    assert mean_interval([3.0]) is None
    assert mean_interval([0.0] * 50) is None


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_response(right: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(right)))
    draws = list(itertools.combinations(right, k))
    assert pass_at(k, len(right), sum(right)) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_takes_k_responses() -> None:
    for k in (0, 3):
        with pytest.raises(ValueError, match="k <= responses"):
            pass_at(k, 2, 1)


def test_rank_correlation_is_spearmans_within_groups_and_draws_members_again() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (3, 2, 12)).astype(float)  # with ties
    groups = [[(f"m{i:02}", x, y) for i, (x, y) in enumerate(zip(*one, strict=True))] for one in values]
    found = rank_correlation(groups)
    assert found.value == pytest.approx(np.mean([stats.spearmanr(*one).statistic for one in values]))
    assert found.n == 12
    # the same members of each group, each as often as it was drawn
    draws = np.random.default_rng(0).multinomial(12, [1 / 12] * 12, 50)
    means = [np.mean([stats.spearmanr(*np.repeat(one, times, axis=1)).statistic for one in values]) for times in draws]
    tail = stats.norm.cdf(math.sqrt(12 / 11) * stats.t.ppf(0.025, 11))
    expected = np.quantile(means, [tail, 1 - tail])
    assert rank_correlation(groups, resamples=50).ci95 == pytest.approx(expected)


def test_rank_correlation_of_many_members_compares_no_two_and_holds_a_batch_of_resamples() -> None:
    values = np.random.default_rng(0).normal(size=(2000, 2))
    group = [(f"m{i}", float(x), float(y)) for i, (x, y) in enumerate(values)]
    tracemalloc.start()
    found = rank_correlation([group], resamples=300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.value == pytest.approx(stats.spearmanr(*values.T).statistic)
    assert peak < 8 * 2**20  # of all pairs alone: 32 MB


def test_rank_correlation_has_no_interval_of_three_and_no_value_where_nothing_varies() -> None:
    assert rank_correlation([[("a", 1, 1), ("b", 2, 3), ("c", 3, 2)]]) == Metric(0.5, None, 3)
    assert rank_correlation([[("a", 1, 1), ("b", 2, 3), ("c", 3, 2), ("d", 4, 4)]]).ci95 is not None
    assert rank_correlation([[("a", 1, 1), ("b", 1, 3)], [("c", 1, 1)]]) == Metric(None, None, 3)
    assert rank_correlation([]) == Metric(None, None, 0)


def test_an_interval_over_seeds_and_problems_is_students_where_only_one_of_them_varies() -> None:
    seeds, problems = np.array([0.1, 0.3, 0.2, 0.6]), np.array([0.0, 0.5, 0.4, 0.3, 0.1, 0.2])
    assert crossed_interval(np.tile(seeds[:, None], 6)) == pytest.approx(t_interval(seeds.tolist()))
    half = stats.t.ppf(0.975, 3) * problems.std(ddof=1) / np.sqrt(6)  # degrees of freedom of the fewer
    assert crossed_interval(np.tile(problems, (4, 1))) == pytest.approx((0.25 - half, 0.25 + half))
    assert crossed_interval(np.full((3, 4), 0.5)) is None
    assert crossed_interval(seeds[None, :]) is None


def test_an_interval_over_seeds_and_problems_has_the_variance_of_their_mean_squares() -> None:
    values = np.random.default_rng(1).normal(size=(4, 1)) + np.random.default_rng(2).normal(size=(4, 6))
    a, b = values.shape
    total = values.mean()
    squares = [b * sum((row.mean() - total) ** 2 for row in values) / (a - 1)]
    squares += [a * sum((column.mean() - total) ** 2 for column in values.T) / (b - 1)]
    rest = [values[i, j] - values[i].mean() - values[:, j].mean() + total for i in range(a) for j in range(b)]
    variance = (sum(squares) - sum(each**2 for each in rest) / ((a - 1) * (b - 1))) / (a * b)
    assert variance > max(squares) / (a * b)  # so that no bound of it counts
    half = stats.t.ppf(0.975, a - 1) * np.sqrt(variance)
    assert crossed_interval(values) == pytest.approx((total - half, total + half))


def test_an_interval_over_seeds_and_problems_covers_where_one_over_seeds_alone_does_not() -> None:
    rng = np.random.default_rng(0)
    covered = {"both": 0, "seeds": 0}
    for _ in range(300):
        values = 0.1 * rng.normal(size=(6, 1)) + 0.6 * rng.normal(size=(1, 20)) + 0.3 * rng.normal(size=(6, 20))
        for name, interval in (("both", crossed_interval(values)), ("seeds", t_interval(values.mean(axis=1).tolist()))):
            assert interval is not None
            covered[name] += interval[0] <= 0 <= interval[1]
    assert covered["both"] >= 0.92 * 300
    assert covered["seeds"] < 0.75 * 300


@pytest.mark.parametrize(("size", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_the_smallest_difference_agrees_with_published_sample_sizes_of_a_paired_t_test(size: float, pairs: int) -> None:
    # G*Power 3.1: "means, difference between two dependent means", two tails, alpha .05, power .8
    fewer, enough = smallest_difference(Spread(1.0), pairs - 1), smallest_difference(Spread(1.0), pairs)
    assert fewer is not None
    assert enough is not None
    assert enough <= size < fewer


@pytest.mark.sample(1)
@pytest.mark.parametrize("spread", [Spread(0.3, 0.0, 0.2), Spread(0.01, 0.04, 0.3)])
def test_the_smallest_difference_is_found_as_often_as_it_says(spread: Spread) -> None:
    seeds, problems = 5, 30
    difference = smallest_difference(spread, problems, seeds, power=0.7)
    assert difference is not None
    rng = np.random.default_rng(3)
    values = difference + rng.normal(size=(2000, seeds, problems)) * np.sqrt(spread.rest)
    values += rng.normal(size=(2000, 1, problems)) * np.sqrt(spread.problem)
    values += rng.normal(size=(2000, seeds, 1)) * np.sqrt(spread.seed)
    estimates = [mean for table in values[:200] if (mean := crossed_mean(table)) is not None]
    # more often with seeds that share luck: their variance, of five values, is often estimated too low
    assert 0.65 <= np.mean([estimate.p_differs() < 0.05 for estimate in estimates]) <= 0.85


def test_one_seed_shows_no_more_than_its_own_problems_do_and_one_problem_nothing() -> None:
    assert smallest_difference(Spread(0.3, 5.0, 0.2), 40) == smallest_difference(Spread(0.5), 40)
    assert smallest_difference(Spread(0.3), 1, 9) is None


def test_a_spread_is_estimated_without_bias_from_differences_with_several_seeds() -> None:
    rng = np.random.default_rng(4)
    true = Spread(0.4, 0.1, 0.2)
    estimates = [
        estimate_spread(
            rng.normal(size=(1, 40)) * np.sqrt(true.problem)
            + rng.normal(size=(12, 1)) * np.sqrt(true.seed)
            + rng.normal(size=(12, 40)) * np.sqrt(true.rest)
        )
        for _ in range(200)
    ]
    assert np.mean(estimates, axis=0) == pytest.approx(true, rel=0.08)
    one_seed = rng.normal(size=(1, 7))
    assert estimate_spread(one_seed) == (pytest.approx(np.var(one_seed, ddof=1)), 0, 0)


def test_no_two_arms_that_are_independent_spread_more_than_the_worst() -> None:
    right = [1.0] * 3 + [0.0] * 7  # of 10 problems: all pairs of two independent arms
    differences = [ours - theirs for ours in right for theirs in right]
    assert worst_spread(mean=0.3).problem == pytest.approx(np.var(differences))
    assert worst_spread() == worst_spread(mean=0.5) == Spread(0.5)
    scores = np.random.default_rng(2).uniform(2, 6, size=1000)
    assert 2 * scores.var() < worst_spread(2, 6, float(scores.mean())).problem <= worst_spread(2, 6).problem == 8
    with pytest.raises(ValueError, match=r"expected a mean in \[0, 1\], got 3"):
        worst_spread(mean=3)

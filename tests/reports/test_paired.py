"""Paired statistics against brute force, SciPy's own tests, and a Holm adjustment written by its definition."""

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evorun.reports.comparison.paired import (
    PairedOutcomes,
    adjust_by_holm,
    compare_pooled_scores,
    compare_scores,
    count_paired_outcomes,
    mcnemar_p,
    rate_difference_interval,
)

OUTCOMES = [True] * 31 + [False] * 19, [True] * 20 + [False] * 16 + [True] * 5 + [False] * 9
"""Fifty problems: 20 both, 11 only the first, 5 only the second, 14 neither."""


def test_outcomes_are_counted_by_problem() -> None:
    counts = count_paired_outcomes(*OUTCOMES)
    assert counts == PairedOutcomes(both=20, ours_only=11, theirs_only=5, neither=14)
    assert (counts.n, counts.discordant) == (50, 16)
    assert counts.difference == pytest.approx(31 / 50 - 25 / 50)
    with pytest.raises(ValueError, match="argument"):
        count_paired_outcomes([True], [])


def _by_enumeration(ours: int, theirs: int) -> float:
    """Sum the chances of all ways in which the discordant problems could fall that are no likelier than this one."""
    n = ours + theirs
    chances = [Fraction(sum(k == sum(way) for way in itertools.product((0, 1), repeat=n)), 2**n) for k in range(n + 1)]
    assert sum(chances) == 1
    return float(sum(chance for chance in chances if chance <= chances[ours]))


@pytest.mark.parametrize(("ours", "theirs"), [(1, 0), (2, 3), (4, 4), (0, 10)])
def test_mcnemar_is_exact(ours: int, theirs: int) -> None:
    assert mcnemar_p(PairedOutcomes(3, ours, theirs, 9)) == pytest.approx(_by_enumeration(ours, theirs), rel=1e-12)


def test_mcnemar_without_discordant_problems_is_certain_of_nothing() -> None:
    assert mcnemar_p(PairedOutcomes(5, 0, 0, 4)) == 1


def test_mcnemar_is_the_test_of_exchanged_signs() -> None:
    ours, theirs = np.array([1] * 9 + [0] * 2 + [1]), np.array([0] * 9 + [1] * 2 + [1])
    oracle = stats.permutation_test(
        (ours, theirs), lambda x, y: np.mean(x - y), permutation_type="samples", alternative="two-sided"
    )
    assert mcnemar_p(count_paired_outcomes(ours.astype(bool).tolist(), theirs.astype(bool).tolist())) == pytest.approx(
        oracle.pvalue
    )


@given(ours=st.integers(0, 400), theirs=st.integers(0, 400))
def test_mcnemar_does_not_care_which_run_comes_first(ours: int, theirs: int) -> None:
    p = mcnemar_p(PairedOutcomes(0, ours, theirs, 0))
    assert p == pytest.approx(mcnemar_p(PairedOutcomes(7, theirs, ours, 2)))
    doubled_tail = 2 * sum(comb(ours + theirs, k) for k in range(min(ours, theirs) + 1)) / 2 ** (ours + theirs)
    assert p == pytest.approx(min(1.0, doubled_tail), rel=1e-9)


@pytest.mark.parametrize(
    "counts",
    [
        PairedOutcomes(20, 11, 5, 14),
        PairedOutcomes(400, 300, 200, 100),
        PairedOutcomes(0, 3, 40, 7),
        PairedOutcomes(90, 4, 0, 56),
    ],
)
def test_the_interval_is_that_of_scipys_bootstrap(counts: PairedOutcomes) -> None:
    ours = np.repeat([1, 1, 0, 0], [counts.both, counts.ours_only, counts.theirs_only, counts.neither])
    theirs = np.repeat([1, 0, 1, 0], [counts.both, counts.ours_only, counts.theirs_only, counts.neither])
    oracle = stats.bootstrap(
        (ours, theirs),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        method="percentile",
        batch=2_000,
        rng=np.random.default_rng(11),
    )
    expected = oracle.confidence_interval
    assert rate_difference_interval(counts) == pytest.approx(
        (expected.low, expected.high), abs=0.1 * oracle.standard_error
    )


def test_the_interval_is_that_of_all_draws_there_are() -> None:
    # 6 problems, all 6^6 draws with replacement
    effects = np.array([1, 1, 1, -1, 0, 0])
    draws = effects[np.array(list(itertools.product(range(6), repeat=6)), dtype=np.int8)].mean(axis=1)
    for confidence in (0.5, 0.8, 0.9):
        tail = (1 - confidence) / 2
        exact = np.quantile(draws, [tail, 1 - tail])
        assert rate_difference_interval(PairedOutcomes(1, 3, 1, 1), confidence) == pytest.approx(tuple(exact), abs=1e-9)


def test_the_interval_is_the_same_each_time_and_turns_with_the_sides() -> None:
    interval = rate_difference_interval(PairedOutcomes(20, 11, 5, 14))
    assert interval == rate_difference_interval(PairedOutcomes(14, 11, 5, 20))
    turned = rate_difference_interval(PairedOutcomes(20, 5, 11, 14))
    assert interval is not None
    assert turned == pytest.approx((-interval[1], -interval[0]), abs=0.025)


def test_no_discordant_problem_gives_no_interval() -> None:
    assert rate_difference_interval(PairedOutcomes(50, 0, 0, 3)) is None


def test_holm_on_a_worked_example() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; the last may not fall below the one before it
    assert adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_by_holm([]) == []
    assert adjust_by_holm([0.2]) == [0.2]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float], level: float) -> None:
    rejected: set[int] = set()
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if min(1.0, (len(p_values) - rank) * p_values[index]) > level:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(adjust_by_holm(p_values)) if p <= level} == rejected


SCORES = [88.0, 40.5, 100.0, 97.5, 12.0, 60.0], [80.0, 44.5, 100.0, 67.5, 10.0, 20.0]


def test_scores_are_compared_problem_by_problem() -> None:
    compared = compare_scores(*SCORES)
    assert compared.n == 6
    assert compared.difference == pytest.approx(np.mean(SCORES[0]) - np.mean(SCORES[1]))
    assert (compared.higher, compared.lower) == (4, 1)
    with pytest.raises(ValueError, match="argument"):
        compare_scores([1.0], [])


def test_the_interval_of_scores_is_scipys_paired_bootstrap() -> None:
    oracle = stats.bootstrap(
        (np.array(SCORES[0]), np.array(SCORES[1])),
        lambda ours, theirs, axis: np.mean(ours, axis=axis) - np.mean(theirs, axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=30_000,
        method="BCa",
        rng=np.random.default_rng(5),
    )
    expected = oracle.confidence_interval
    interval = compare_scores(*SCORES).ci95
    assert interval == pytest.approx((expected.low, expected.high), abs=0.15 * oracle.standard_error)
    assert compare_scores([3.0, 5.0], [1.0, 3.0]).ci95 is None


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=9))
@settings(max_examples=20)
def test_scores_turn_with_the_sides(pairs: list[tuple[int, int]]) -> None:
    ours, theirs = zip(*pairs, strict=True)
    there, back = compare_scores(ours, theirs), compare_scores(theirs, ours)
    assert there.difference == pytest.approx(-back.difference)
    assert (there.higher, there.lower) == (back.lower, back.higher)
    assert (there.ci95 is None) == (back.ci95 is None)


def _seeds(*means: float, spread: float = 0.0) -> list[dict[str, float]]:
    """Return ours less theirs on two problems, of seeds with these means."""
    return [{"a": mean + spread, "b": mean - spread} for mean in means]


def test_the_interval_over_seeds_is_cut_at_the_largest_difference() -> None:
    means = [0.9, 0.5, 0.7]
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert high > 1 > low > -1
    assert compare_pooled_scores(_seeds(*means)).seeds_ci95 == pytest.approx((low, high))
    assert compare_pooled_scores(_seeds(*means), 1.0).seeds_ci95 == pytest.approx((low, 1.0))
    below = [-mean for mean in means]
    assert compare_pooled_scores(_seeds(*below), 1.0).seeds_ci95 == pytest.approx((-1.0, -low))
    assert compare_pooled_scores(_seeds(0.9, -0.9, 0.1), 1.0).seeds_ci95 is None


def test_an_interval_over_seeds_and_problems_is_not_the_whole_range() -> None:
    half = stats.t.ppf(0.975, 1) * 1.0  # the seeds agree: two problems, 1 and -1
    assert compare_pooled_scores(_seeds(*[0.0] * 5, spread=1.0), 20.0).two_way_ci95 == pytest.approx((-half, half))
    assert compare_pooled_scores(_seeds(*[0.0] * 5, spread=1.0), 1.0).two_way_ci95 is None

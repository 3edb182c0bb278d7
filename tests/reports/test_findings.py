"""The sentence below each comparison: what it claims, and what it refuses to claim."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from evorun.reports.comparison.findings import describe_finding
from evorun.reports.comparison.paired import (
    PairedScores,
    compare_pooled_scores,
    compare_rates,
    compare_scores,
    count_paired_outcomes,
    mcnemar_p,
)
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.tables import make_pairs_table
from evorun.runs.scores import ACCURACY, Score

DISTANCE = Score("distance", 0.0, None, higher_is_better=False)


def _pair(compared: PairedScores, p: float | None, score: Score = ACCURACY, comparisons: int = 1) -> Pair:
    return Pair("duel_evolve", "best_of_n", score, compared, p, p, comparisons, {}, "")


def _seeds(gained: float, lost: float, seeds: int = 3, problems: int = 60) -> PairedScores:
    draws = np.random.default_rng(0).random((seeds, problems))
    return compare_pooled_scores(
        [{str(i): float(u < gained) - float(u > 1 - lost) for i, u in enumerate(row)} for row in draws], 1.0
    )


def _rates(ours: Sequence[bool], theirs: Sequence[bool]) -> Pair:
    counts = count_paired_outcomes(ours, theirs)
    return _pair(compare_rates(counts), mcnemar_p(counts))


def test_a_difference_is_claimed_with_its_interval_design_and_adjusted_test() -> None:
    compared = _seeds(0.3, 0.05)
    low, high = compared.two_way_ci95 or (0, 0)
    assert low > 0
    assert describe_finding(_pair(compared, 0.004, comparisons=3)) == (
        f"duel_evolve is above best_of_n by {100 * compared.difference:.1f} pp in accuracy (unadjusted 95 % interval "
        f"+{100 * low:.1f} to +{100 * high:.1f} pp, 3 seeds x 60 shared problems, Holm-adjusted p = 0.004 over 3 "
        "comparisons)."
    )


def test_nothing_is_claimed_where_the_adjusted_test_finds_nothing() -> None:
    said = describe_finding(_pair(_seeds(0.3, 0.05), 0.06, comparisons=4))
    assert said.startswith("No difference in accuracy between duel_evolve and best_of_n is shown: Holm-adjusted p is")
    assert " p is not below 0.05, although the interval excludes 0" in said
    assert "Holm-adjusted p = 0.060 over 4 comparisons" in said
    assert " above " not in said


def test_nothing_is_claimed_where_the_interval_includes_zero_and_the_power_is_said() -> None:
    compared = _seeds(0.15, 0.15)
    assert compared.crossed is not None
    for p in (0.4, 0.001):
        said = describe_finding(_pair(compared, p))
        point = f"difference {100 * compared.difference:+.1f} pp".replace("-", "\N{MINUS SIGN}")
        assert f"is shown: the interval includes 0 ({point}, 95 % interval " in said
        assert said.endswith(
            "This comparison could have shown only a difference of "
            f"{100 * compared.crossed.smallest_difference():.1f} pp or more (power 0.8)."
        )
    assert "unadjusted" not in said  # of a single comparison


def test_no_rate_is_said_to_differ_by_more_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = _seeds(0.15, 0.15)
    monkeypatch.setattr(type(compared.crossed), "smallest_difference", lambda _: 3.0)
    pair = _pair(compared, 0.4)
    assert describe_finding(pair).endswith("This comparison could have shown nothing, not even 100 pp (power 0.8).")
    assert "> 100 pp" in make_pairs_table([pair]).shown()[0]


def test_one_seed_says_that_it_is_about_problems_only() -> None:
    said = describe_finding(_rates([True] * 18 + [False] * 2, [True] * 4 + [False] * 16))
    assert said.startswith("duel_evolve is above best_of_n by 70.0 pp in accuracy (95 % interval ")
    assert "1 seed x 20 shared problems: about other problems, not other seeds, p " in said


@pytest.mark.parametrize(("sign", "side"), [(1, "above"), (-1, "below")])
def test_the_side_is_that_of_the_values_also_where_lower_is_better(sign: int, side: str) -> None:
    ours = [sign * (2 + i % 3) for i in range(30)]
    compared = compare_scores(ours, [0.0] * 30)
    assert compared.crossed is not None
    said = describe_finding(_pair(compared, compared.crossed.p_differs(), DISTANCE))
    assert said.startswith(f"duel_evolve is {side} best_of_n by 3.00 in distance (lower is better) (95 % interval ")


def test_what_does_not_vary_is_said_so_and_claims_nothing() -> None:
    assert describe_finding(_rates([True, False], [True, False])) == (
        "No difference in accuracy between duel_evolve and best_of_n is shown: each problem has the same outcome "
        "(1 seed x 2 shared problems: about other problems, not other seeds)."
    )
    assert "all problems differ by the same amount" in describe_finding(
        _pair(compare_scores([2.0, 3.0], [1.0, 2.0]), None, DISTANCE)
    )


def test_an_interval_of_the_whole_range_claims_nothing() -> None:
    compared = replace(_seeds(0.3, 0.05), two_way_ci95=None)
    assert "is shown: the interval is the whole range (difference +" in describe_finding(_pair(compared, 0.01))


def test_problems_of_each_seed_of_their_own_and_missing_ones_are_counted_as_such() -> None:
    own = [{f"{seed}-{i}": float(i % 2) for i in range(8)} for seed in range(3)]
    own[0]["0-0"] = 1.0
    assert "3 seeds x 8 problems of their own" in describe_finding(_pair(compare_pooled_scores(own, 1.0), 0.5))
    shared = [{str(i): float((i + seed) % 2) for i in range(8 - seed)} for seed in range(3)]
    assert "3 seeds x up to 8 shared problems" in describe_finding(_pair(compare_pooled_scores(shared, 1.0), 0.5))

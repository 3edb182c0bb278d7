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
        f"duel_evolve is above best_of_n by {100 * compared.difference:.1f} pp in accuracy (p = 0.004, Holm-adjusted "
        "for 3 comparisons). The test is over seeds and problems (3 seeds x 60 shared problems): unadjusted 95 % "
        f"interval +{100 * low:.1f} to +{100 * high:.1f} pp."
    )


def test_nothing_is_claimed_where_the_adjusted_test_finds_nothing() -> None:
    pair = replace(_pair(_seeds(0.3, 0.05), 0.06, comparisons=4), p=0.015)
    said = describe_finding(pair)
    none = "No difference in accuracy between duel_evolve and best_of_n is shown"
    assert said.startswith(f"{none} (p = 0.060, Holm-adjusted for 4 comparisons). The test is over seeds and problems ")
    assert (
        " pp. The interval excludes 0, but it is not adjusted for the number of comparisons; p is. Such data " in said
    )
    assert said.endswith(" with probability 0.8, without Holm's adjustment.")
    assert " above " not in said


def test_it_is_said_why_intervals_without_zero_do_not_decide() -> None:
    # five seeds of eight problems: better 14 times and never worse, but half of the difference is one problem's
    gains = [
        [0, 18, 0, 0, 38, 0, 0, 9],
        [0, 0, 0, 0, 54, 18, 0, 0],
        [0, 0, 0, 0, 8, 0, 18, 0],
        [0, 18, 0, 0, 15, 0, 9, 9],
        [11, 0, 0, 0, 31, 0, 0, 27],
    ]
    kept = Score("wishes_kept", 0.0, 1.0)
    compared = compare_pooled_scores([{str(i): gain / 100 for i, gain in enumerate(row)} for row in gains], 1.0)
    assert compared.crossed is not None
    p = compared.crossed.p_differs()
    cases = (
        (
            compared,
            "The intervals over seeds alone and over problems alone exclude 0, but each takes the other as fixed.",
        ),
        (
            replace(compared, seeds_ci95=(-0.01, 0.1)),
            "The interval over problems alone excludes 0, but it takes the seeds as fixed.",
        ),
        (replace(compared, ci95=None), "The interval over seeds alone excludes 0, but it takes the problems as fixed."),
    )
    for case, sentence in cases:
        assert f" to +0.151. {sentence} Such data would show " in describe_finding(_pair(case, p, kept))
    one = _rates([True] * 5 + [False] * 15, [False] * 20)  # McNemar's p is 1/16, and the bootstrap has no loss to draw
    assert " pp. The interval excludes 0, but it is a bootstrap, " in describe_finding(one)


def test_nothing_is_claimed_where_the_interval_includes_zero_and_the_power_is_said() -> None:
    compared = _seeds(0.15, 0.15)
    assert compared.crossed is not None
    for p in (0.4, 0.001):
        said = describe_finding(_pair(compared, p))
        point = f"difference {100 * compared.difference:+.1f} pp".replace("-", "\N{MINUS SIGN}")
        assert f" is shown (p = {p:.3f}). The test is over seeds and problems (3 seeds x 60 shared problems): " in said
        assert f": {point}, 95 % interval " in said
        assert ("A claim needs both p < 0.05 and an interval that excludes 0." in said) == (p < 0.05)
        smallest = f"{100 * compared.crossed.smallest_difference():.1f} pp"
        assert said.endswith(f"Such data would show a true difference of {smallest} with probability 0.8.")
    assert "adjust" not in said  # of a single comparison


def test_no_rate_is_said_to_differ_by_more_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = _seeds(0.15, 0.15)
    monkeypatch.setattr(type(compared.crossed), "smallest_difference", lambda _: 3.0)
    pair = _pair(compared, 0.4)
    assert describe_finding(pair).endswith("would not show even a true difference of 100 pp with probability 0.8.")
    assert "> 100 pp" in make_pairs_table([pair]).shown()[0]


def test_one_seed_says_that_it_is_about_problems_only() -> None:
    said = describe_finding(_rates([True] * 18 + [False] * 2, [True] * 4 + [False] * 16))
    assert said.startswith("duel_evolve is above best_of_n by 70.0 pp in accuracy (p ")
    assert "). The test is over problems, not seeds (1 seed x 20 shared problems): 95 % interval " in said


@pytest.mark.parametrize(("sign", "side"), [(1, "above"), (-1, "below")])
def test_the_side_is_that_of_the_values_also_where_lower_is_better(sign: int, side: str) -> None:
    ours = [sign * (2 + i % 3) for i in range(30)]
    compared = compare_scores(ours, [0.0] * 30)
    assert compared.crossed is not None
    said = describe_finding(_pair(compared, compared.crossed.p_differs(), DISTANCE))
    assert said.startswith(f"duel_evolve is {side} best_of_n by 3.00 in distance (lower is better) (p ")


def test_what_does_not_vary_is_said_so_and_claims_nothing() -> None:
    assert describe_finding(_rates([True, False], [True, False])) == (
        "No difference in accuracy between duel_evolve and best_of_n is shown: each problem has the same outcome "
        "(1 seed x 2 shared problems)."
    )
    assert "all problems differ by the same amount" in describe_finding(
        _pair(compare_scores([2.0, 3.0], [1.0, 2.0]), None, DISTANCE)
    )


def test_an_interval_of_the_whole_range_claims_nothing() -> None:
    compared = replace(_seeds(0.3, 0.05), two_way_ci95=None)
    said = describe_finding(_pair(compared, 0.01))
    assert said.startswith("No difference ")
    assert " pp, no interval, since it would be the whole range. A claim needs both " in said


def test_problems_of_each_seed_of_their_own_and_missing_ones_are_counted_as_such() -> None:
    own = [{f"{seed}-{i}": float(i % 2) for i in range(8)} for seed in range(3)]
    own[0]["0-0"] = 1.0
    assert "3 seeds x 8 problems of their own" in describe_finding(_pair(compare_pooled_scores(own, 1.0), 0.5))
    shared = [{str(i): float((i + seed) % 2) for i in range(8 - seed)} for seed in range(3)]
    assert "3 seeds x up to 8 shared problems" in describe_finding(_pair(compare_pooled_scores(shared, 1.0), 0.5))

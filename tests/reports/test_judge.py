"""Decisive duels along a run, warnings about a judge, and calibration."""

import json
from pathlib import Path

import pytest

from evorun.reports import write_report
from evorun.reports.figures import JUDGE, make_figures_table, warn_of_indecision
from evorun.runs.aggregates import DecisiveDuels, Rated, calibration
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.statistics import clustered_mean, wilson
from run_fixture import write_run

pytestmark = pytest.mark.usefixtures("without_figures")


def _duels(step: int, problem: str, *won: bool) -> list[ComparisonRecord]:
    return [
        ComparisonRecord(
            problem=problem, step=step, first="a", second="b", verdicts=("A", "B"), reasons=("", ""),
            outcome="first" if one else None,
        )
        for one in won
    ]  # fmt: skip


def count_decisive(duels: list[ComparisonRecord]) -> dict[int, Metric]:
    counter = DecisiveDuels()
    for duel in duels:
        counter.add(duel)
    return counter.figures()


def test_decisive_shares_are_of_each_step_and_their_intervals_draw_problems_again() -> None:
    early = [*_duels(1, "p", True, True, False), *_duels(1, "q", False), *_duels(1, "r", True)]
    whole_range = count_decisive(early)[1]
    assert (whole_range.value, whole_range.ci95) == (3 / 5, None)  # draws of q alone, and of r: it would say nothing
    early += [*_duels(1, "s", True, False), *_duels(1, "t", True, False, True), *_duels(1, "u", True, False)]
    shares = count_decisive([*_duels(2, "p", True), *early])
    assert list(shares) == [1, 2]
    assert (shares[1].value, shares[1].n) == (7 / 12, 12)
    assert shares[1].ci95 == clustered_mean([2, 0, 1, 1, 2, 1], [3, 1, 1, 2, 3, 2])
    assert (shares[2].value, shares[2].n) == (1.0, 1)


def test_a_page_has_one_interval_for_a_figure(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    results["metrics"]["judge_agreement"] = {"value": 0.7, "ci95": None, "n": 10}
    results["metrics"]["decisive_rate"] |= {"value": 0.5, "ci95": [0.123, 0.877]}
    (run / "results.json").write_text(json.dumps(results))
    page = write_report(run).read_text()
    assert "12.3 to 87.7 %" in page
    assert "<td>Right won against wrong (chance: 50 %)" in page
    assert "10 decisive duels of a right and a wrong one" in page
    assert "Intervals are over problems, whatever n counts: texts and duels of one problem are not independent" in page


def test_it_is_said_that_a_share_at_an_end_counts_problems_as_trials() -> None:
    metrics = {"tie_rate": Metric(0.0, wilson(0, 8), 960), "decisive_rate": Metric(0.5, (0.4, 0.6), 480)}
    table = make_figures_table(metrics, JUDGE)
    assert table.shown()[1] == ["ties", "0.0 %", "0.0 to 32.4 %", "960"]
    assert table.caption.endswith(" At 0.0 % they are Wilson's, with each problem as one trial.")
    assert "Wilson" not in make_figures_table({"decisive_rate": metrics["decisive_rate"]}, JUDGE).caption


def _rated(*means_and_values: tuple[float, float]) -> list[Rated]:
    return [Rated(f"p{i}", mean, value) for i, (mean, value) in enumerate(means_and_values)]


def test_calibration_groups_are_of_equal_size_at_their_mean_prediction() -> None:
    bins = calibration(_rated(*((i * i / 100, i >= 60) for i in range(100)))[::-1], ACCURACY, bins=4)
    assert [b.figure.n for b in bins] == [25] * 4
    means = [sum(i * i / 2500 for i in range(first, first + 25)) for first in (0, 25, 50, 75)]
    assert [b.mean for b in bins] == pytest.approx(means)
    assert [b.figure.value for b in bins] == [0, 0, 15 / 25, 1]


def test_calibration_keeps_equal_means_together_and_cuts_where_sizes_are_nearest() -> None:
    bins = calibration(_rated(*[(0.0, 1.0)] * 50, *[(1.0, 0.0)] * 3), ACCURACY, bins=8)
    assert [(b.figure.value, b.figure.n) for b in bins] == [(1, 50), (0, 3)]
    # halves would be cut within the ties: 8 and 12 are nearer than 14 and 6
    tied = _rated(*((i, 1.0) for i in range(8)), *[(8.0, 1.0)] * 6, *((9.0 + i, 0.0) for i in range(6)))
    assert [b.figure.n for b in calibration(tied, ACCURACY, bins=2)] == [8, 12]


def test_calibration_intervals_draw_problems_again() -> None:
    # ten candidates to a problem, all right or all wrong: there are as many facts as problems
    rated = [Rated(f"p{i}", 0.1 * i + 0.001 * k, float(i % 2)) for i in range(12) for k in range(10)]
    (group,) = calibration(rated, ACCURACY, bins=1)
    assert (group.figure.value, group.figure.n) == (0.5, 120)
    low, high = group.figure.ci95 or (0, 0)
    assert (low, high) == clustered_mean([10.0 * (i % 2) for i in range(12)], [10] * 12)
    independent = wilson(60, 120)
    assert high - low > 2 * (independent[1] - independent[0])
    (mean,) = calibration(rated, Score("quality", 0, 10), bins=1)
    assert mean.figure.ci95 == (low, high)


def test_calibration_of_nothing() -> None:
    assert calibration([], ACCURACY) == []


def _metrics(decisive: float, position: float | None) -> dict[str, Metric]:
    return {"decisive_rate": Metric(decisive, None, 2), "position_a_rate": Metric(position, None, 4)}


def test_a_judge_that_always_names_one_place_is_called_biased() -> None:
    warning = str(warn_of_indecision(_metrics(0.0, 1.0)))
    assert warning.startswith("Position bias 100 %: whenever the judge chose, it named A,")
    assert "the posterior stays the prior" in warning
    assert "named B" in str(warn_of_indecision(_metrics(0.0, 0.0)))


@pytest.mark.parametrize("position", [0.5, None])
def test_no_decisive_duel_is_explained_without_a_bias(position: float | None) -> None:
    assert str(warn_of_indecision(_metrics(0.0, position))).startswith("None of the 2 duels was decisive")


def test_one_decisive_duel_needs_no_warning() -> None:
    assert warn_of_indecision(_metrics(0.5, 1.0)) is None
    assert warn_of_indecision({}) is None


def test_calibration_of_a_score_is_its_mean() -> None:
    low, high = calibration(_rated((0.1, 2.0), (0.2, 4.0), (0.8, 7.0), (0.9, 9.5)), Score("quality", 0, 10), bins=2)
    assert [(one.figure.value, one.figure.n) for one in (low, high)] == [(3.0, 2), (8.25, 2)]

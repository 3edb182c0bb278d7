"""Decisive duels along a run, warnings about a judge, and calibration."""

import json
from pathlib import Path

import pytest

from evorun.reports import write_report
from evorun.reports.judge import calibration, decisive_by_step, judge_warning
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import ACCURACY, Score
from run_fixture import write_run


def _duels(step: int, problem: str, *won: bool) -> list[ComparisonRecord]:
    return [
        ComparisonRecord(
            problem=problem, step=step, first="a", second="b", verdicts=("A", "B"), reasons=("", ""),
            outcome="first" if one else None,
        )
        for one in won
    ]  # fmt: skip


def test_decisive_shares_are_of_each_step_and_their_intervals_draw_problems_again() -> None:
    early = [*_duels(1, "p", True, True, False), *_duels(1, "q", False), *_duels(1, "r", True)]
    shares = decisive_by_step([*_duels(2, "p", True), *early])
    assert list(shares) == [1, 2]
    assert (shares[1].value, shares[1].n) == (3 / 5, 5)
    assert shares[1].ci95 == (0.0, 1.0)  # all draws of q, or of r: five independent duels would give 0.23 to 0.88
    assert (shares[2].value, shares[2].n) == (1.0, 1)


def test_a_page_has_one_interval_for_a_figure(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    results["metrics"]["decisive_rate"] |= {"value": 0.5, "ci95": [0.123, 0.877]}
    (run / "results.json").write_text(json.dumps(results))
    assert "12.3 to 87.7 %" in write_report(run).read_text()


def test_calibration_groups_are_of_about_equal_size_and_in_order() -> None:
    graded = [(i / 10, i >= 60) for i in range(100)]
    bins = calibration(graded[::-1], ACCURACY, bins=4)
    assert [(b.low, b.high) for b in bins] == [(0, 2.4), (2.5, 4.9), (5, 7.4), (7.5, 9.9)]
    assert [b.figure.value for b in bins] == [0, 0, 15 / 25, 1]


def test_calibration_keeps_equal_means_together() -> None:
    bins = calibration([(0.0, True)] * 50 + [(1.0, False)] * 3, ACCURACY, bins=8)
    assert [(b.figure.value, b.figure.n) for b in bins] == [(1, 50), (0, 3)]


def test_calibration_of_nothing() -> None:
    assert calibration([], ACCURACY) == []


def _metrics(decisive: float, position: float | None) -> dict[str, Metric]:
    return {"decisive_rate": Metric(decisive, None, 2), "position_a_rate": Metric(position, None, 4)}


def test_a_judge_that_always_names_one_place_is_called_biased() -> None:
    warning = str(judge_warning(_metrics(0.0, 1.0)))
    assert warning.startswith("Position bias 100 %: whenever the judge chose, it named A,")
    assert "the posterior stays the prior" in warning
    assert "named B" in str(judge_warning(_metrics(0.0, 0.0)))


@pytest.mark.parametrize("position", [0.5, None])
def test_no_decisive_duel_is_explained_without_a_bias(position: float | None) -> None:
    assert str(judge_warning(_metrics(0.0, position))).startswith("None of the 2 duels was decisive")


def test_one_decisive_duel_needs_no_warning() -> None:
    assert judge_warning(_metrics(0.5, 1.0)) is None
    assert judge_warning({}) is None


def test_calibration_of_a_score_is_its_mean() -> None:
    low, high = calibration([(0.1, 2.0), (0.2, 4.0), (0.8, 7.0), (0.9, 9.5)], Score("quality", 0, 10), bins=2)
    assert [(one.figure.value, one.figure.n) for one in (low, high)] == [(3.0, 2), (8.25, 2)]

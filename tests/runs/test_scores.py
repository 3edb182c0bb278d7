"""Declared scores: their values in grades, their direction, and the score that compares responses."""

import math
from typing import Any

import pytest
from scipy.stats import binomtest

from evorun.runs.results import mean_score, metric_series, outcome_metrics, recorded_scores, score_series
from evorun.runs.schema import PredictionRecord, ReturnedCandidate, StepRecord
from evorun.runs.scores import ACCURACY, Score, find_violation, mean_of_samples, primary_score
from evorun.tasks.base import Grade

QUALITY = Score("quality", 0, 10)
ERROR = Score("error", 0, higher_is_better=False)


@pytest.mark.parametrize(
    ("score", "value", "utility"),
    [
        (QUALITY, 7.5, 0.75),
        (Score("loss", 2, 6, higher_is_better=False), 3, 0.75),
        (ERROR, 3, -3),
        (Score("elo"), 1500, 1500),
        (Score("one_bound", 0), 4, 4),
        (ACCURACY, 1, 1),
    ],
)
def test_more_utility_is_better_and_it_is_scaled_where_the_range_is_known(
    score: Score, value: float, utility: float
) -> None:
    assert score.utility(value) == pytest.approx(utility)
    assert score.from_utility(utility) == pytest.approx(value)


def test_accuracy_is_what_is_correct_and_other_values_stand_under_their_names() -> None:
    grade = Grade(correct=True, scores={"quality": 3.0, "broken": math.nan, "endless": math.inf})
    assert [ACCURACY.value_in(grade), QUALITY.value_in(grade)] == [1.0, 3.0]
    assert [Score(name).value_in(grade) for name in ("broken", "endless", "unknown")] == [None, None, None]
    assert ACCURACY.value_in(Grade(scores={"quality": 3.0})) is None


def test_right_and_wrong_say_how_good_a_response_is_wherever_they_are_declared() -> None:
    assert primary_score((QUALITY, ACCURACY)) == ACCURACY
    assert primary_score((ERROR, QUALITY)) == ERROR


def test_samples_have_a_pass_rate_or_the_mean_of_the_primary_score() -> None:
    assert mean_of_samples(ACCURACY).name == "pass_rate"
    assert mean_of_samples(ERROR) == Score("mean_error", 0, None, higher_is_better=False)


def _prediction(problem: str, stratum: str = "all", correct: bool | None = None, **scores: float) -> PredictionRecord:
    return PredictionRecord(problem, stratum, "c", "A", correct, {**scores}, None, 1, 1, "generations", {})


def test_rates_of_any_name_have_wilsons_interval() -> None:
    metric = mean_score(Score("solved", 0, 1, rate=True), [1.0, 0.0, 1.0, None])
    oracle = binomtest(2, 3).proportion_ci(method="wilson")
    assert (metric.value, metric.n) == (pytest.approx(2 / 3), 3)
    assert metric.ci95 == pytest.approx((oracle.low, oracle.high))


def test_the_primary_score_comes_first_and_what_is_not_declared_has_no_bounds() -> None:
    predictions = [_prediction("p", digits=2.0), _prediction("q", quality=5.0, mean_quality=4.0)]
    assert recorded_scores(predictions, [QUALITY]) == [QUALITY, Score("digits"), Score("mean_quality", 0, 10)]


def test_means_are_over_those_that_have_a_score() -> None:
    predictions = [_prediction("p", "a", quality=2.0), _prediction("q", "a", quality=6.0), _prediction("r", "b")]
    metrics, by_stratum = outcome_metrics(predictions, [QUALITY])
    assert (metrics["quality"].value, metrics["quality"].n) == (4.0, 2)
    assert (by_stratum["b"]["quality"].value, by_stratum["b"]["quality"].n) == (None, 0)
    assert "accuracy" not in metrics


def test_the_series_of_a_score_leaves_out_what_has_none() -> None:
    def step(problem: str, **scores: float) -> StepRecord:
        return StepRecord(problem, "a", 0, ReturnedCandidate("c", "A", ""), None, None, 1, 1, {}, {}, {**scores})

    points = {point.name: point for point in metric_series([step("p", quality=2.0), step("q")], [QUALITY])}
    assert (points["quality"].value, points["quality"].n, points["quality/a"].n) == (2.0, 1, 1)
    assert list(points) == ["quality", "quality/a"]


@pytest.mark.parametrize("name", ["quality", "extra", "unknown"])
def test_the_series_of_one_score_is_that_of_all_scores_without_the_others(name: str) -> None:
    def step(problem: str, number: int, **scores: float) -> StepRecord:
        return StepRecord(problem, "a", number, ReturnedCandidate("c", "A", ""), None, None, 1, 1, {}, {}, {**scores})

    steps = [step("p", 0, quality=2.0), step("p", 2, quality=3.0, extra=1.0), step("q", 1, quality=9.0)]
    expected = [point for point in metric_series(steps, [QUALITY]) if point.name == name]
    assert score_series(steps, [QUALITY], name) == expected
    assert [point.step for point in expected] == {"quality": [0, 1, 2], "extra": [2], "unknown": []}[name]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"form": 1.0, "extra": 7.0}, None),
        ({"form": 1.0 + 1e-12}, None),
        ({"form": 0.0}, None),
        ({"form": -1e-12}, None),
        ({"form": math.nan}, None),
        ({"form": None}, None),
        ({}, None),
        ({"frm": 1.0}, "expected a score named 'form', got 'frm'"),
        ({"form": 1.1}, "expected the score 'form' from 0 to 1, got 1.1"),
        ({"form": -0.5}, "expected the score 'form' from 0 to 1, got -0.5"),
        ({"form": "good"}, "expected a number as the score 'form', got 'good'"),
    ],
)
def test_a_score_is_named_and_bounded_as_it_is_declared(scores: dict[str, Any], said: str | None) -> None:
    assert find_violation((ACCURACY, Score("form", 0, 1)), Grade(scores=scores, correct=True)) == said

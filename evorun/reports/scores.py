"""The tables of a task's scores, cell by cell: the same on a page and in a terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.overview import Outcome
from evorun.runs.schema import Metric, MetricPoint
from evorun.runs.scores import Score

_LITTLE = 0.1
"""Share of a score's scale (ours)."""


class ScoreRow(NamedTuple):
    """A line of the table."""

    cells: tuple[str, str, str, str, str]
    """Stratum, score, mean, 95 % interval, n."""
    begins_group: bool
    """The first line of a stratum, or of all."""


def score_rows(outcome: Outcome) -> list[ScoreRow]:
    """Return the means of all scores but the primary one by stratum, where there are several, and over all problems."""
    rows: list[ScoreRow] = []
    # the means of a single stratum are those over all problems
    if len(outcome.by_stratum) > 1:
        for stratum, metrics in outcome.by_stratum.items():
            rows += _rows(stratum, outcome.other_scores, metrics)
    return rows + _rows("all" if outcome.finished else "all so far", outcome.other_scores, outcome.metrics)


def score_cells(score: Score, mean: Metric | MetricPoint | None) -> tuple[str, str, str]:
    """Return a mean of a score, its interval and n."""
    found = mean or Metric(None, None, 0)
    return text.value(score, found.value), text.value_interval(score, found.ci95), text.count(found.n)


def _rows(group: str, scores: Sequence[Score], metrics: Mapping[str, Metric]) -> list[ScoreRow]:
    found = [(score, metrics[score.name]) for score in scores if score.name in metrics]
    return [
        ScoreRow(
            (
                group if index == 0 else "",
                text.label(score),
                *score_cells(score, metric),
            ),
            begins_group=index == 0,
        )
        for index, (score, metric) in enumerate(found)
    ]


def is_flat(score: Score, points: Sequence[MetricPoint]) -> bool:
    """Say whether a curve shows no change: its intervals overlap, and it covers little of the score's scale."""
    values = [point.value for point in points if point.value is not None]
    if len(values) < 2:
        return False
    scale = max(map(abs, values)) if score.low is None or score.high is None else score.high - score.low
    # a point without an interval is one at which all problems agree
    lows, highs = zip(*(point.ci95 or (-math.inf, math.inf) for point in points), strict=True)
    return max(lows) <= min(highs) and max(values) - min(values) <= _LITTLE * scale

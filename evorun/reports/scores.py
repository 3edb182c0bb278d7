"""The tables of a task's scores, cell by cell: the same on a page and in a terminal."""

import math
from collections.abc import Sequence

from evorun.reports import text
from evorun.reports.overview import Outcome
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.schema import Metric, MetricPoint
from evorun.runs.scores import Score

_LITTLE = 0.1
"""Share of a score's scale (ours)."""


def primary_table(outcome: Outcome) -> Table:
    """Return the mean of the primary score by stratum, and over all problems."""
    primary, everything = outcome.primary, "all" if outcome.finished else "all so far"
    # a task without strata calls its only one `all`
    strata = {} if list(outcome.by_stratum) == ["all"] else outcome.by_stratum
    return Table(
        [*word_columns("stratum"), *figure_columns(text.label(primary), "95 % interval", "n")],
        [
            (name, *score_cells(primary, metrics.get(primary.name)))
            for name, metrics in (*strata.items(), (everything, outcome.metrics))
        ],
        title=f"{outcome.manifest.method} on {outcome.manifest.task}",
        total=len(strata),
    )


def scores_table(outcome: Outcome) -> Table:
    """Return the means of all scores but the primary one by stratum, where there are several, and over all problems."""
    columns = [*word_columns("stratum", "score"), *figure_columns("mean", "95 % interval", "n")]
    table = Table(columns, title="scores", grouped=True)
    # the means of a single stratum are those over all problems
    strata = outcome.by_stratum if len(outcome.by_stratum) > 1 else {}
    for name, metrics in (*strata.items(), ("all" if outcome.finished else "all so far", outcome.metrics)):
        found = [score for score in outcome.other_scores if score.name in metrics]
        for group, score in zip([name, *[""] * len(found)], found, strict=False):
            table.rows.append((group, text.label(score), *score_cells(score, metrics[score.name])))
    return table


def score_cells(score: Score, mean: Metric | MetricPoint | None) -> tuple[str, str, str]:
    """Return a mean of a score, its interval and n."""
    found = mean or Metric(None, None, 0)
    return text.value(score, found.value), text.value_interval(score, found.ci95), text.count(found.n)


def is_flat(score: Score, points: Sequence[MetricPoint]) -> bool:
    """Say whether a curve shows no change: its intervals overlap, and it covers little of the score's scale."""
    values = [point.value for point in points if point.value is not None]
    if len(values) < 2:
        return False
    scale = max(map(abs, values)) if score.low is None or score.high is None else score.high - score.low
    # a point without an interval is one at which all problems agree
    lows, highs = zip(*(point.ci95 or (-math.inf, math.inf) for point in points), strict=True)
    return max(lows) <= min(highs) and max(values) - min(values) <= _LITTLE * scale

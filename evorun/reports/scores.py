"""The table of a task's scores, cell by cell: the same on a page and in a terminal."""

from collections.abc import Mapping
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.overview import Outcome
from evorun.runs.printable import printable
from evorun.runs.schema import Metric


class ScoreRow(NamedTuple):
    """A line of the table."""

    cells: tuple[str, str, str, str, str]
    """Stratum, score, mean, 95 % interval, n."""
    begins_group: bool
    """The first line of a stratum, or of all."""


def score_rows(outcome: Outcome) -> list[ScoreRow]:
    """Return the means of the scores by stratum, where there are several, and over all problems."""
    rows: list[ScoreRow] = []
    if len(outcome.by_stratum) > 1:
        for stratum, metrics in outcome.by_stratum.items():
            rows += _rows(printable(stratum), {name: metrics[name] for name in outcome.scores if name in metrics})
    return rows + _rows("all" if outcome.finished else "all so far", outcome.scores)


def _rows(group: str, metrics: Mapping[str, Metric]) -> list[ScoreRow]:
    return [
        ScoreRow(
            (
                group if place == 0 else "",
                text.words(name),
                text.number(metric.value),
                text.number_interval(metric.ci95),
                text.count(metric.n),
            ),
            begins_group=place == 0,
        )
        for place, (name, metric) in enumerate(metrics.items())
    ]

"""The figures of a method's own: those in `Step.extra` that no other part of the page shows, and the pool's size."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from evorun.reports import text
from evorun.reports.islands import SHOWN as SHOWN_OF_ISLANDS
from evorun.reports.tables import Table, figure_columns, make_data_table, word_columns
from evorun.runs.results import RARE_COUNTS, SAVED, TEXT_COUNTS
from evorun.runs.schema import MetricPoint, StepRecord

POOL = "pool"
"""Name of the figure that counts the candidates that the method still considers."""
_SHOWN_ELSEWHERE = frozenset(
    (
        *(*TEXT_COUNTS, *RARE_COUNTS, *SAVED),
        *("children", "pruned", "capped", POOL),
        *("duels", "decisive", "position_a", "position_b", "ties", "invalid_judgments"),
    )
)
"""Counts from which the tables of the search and the judge are made."""

_MIN_SHARE = 0.5
"""Minimum share of a run's problems in a mean that a line shows as one over the run (ours)."""

MethodFigures = Mapping[str, Sequence[MetricPoint]]
"""By name; in the order of steps."""


def collect_method_figures(steps: Sequence[StepRecord], scores: Collection[str]) -> MethodFigures:
    """Return the figures' means over the problems that took a step, with the names of scores left out.

    The pool's size comes first, unless it never changes.
    """
    found: dict[str, dict[int, list[float]]] = {POOL: defaultdict(list)}
    for record in steps:
        found[POOL][record.step].append(record.pool)
        for name, value in record.extra.items():
            if is_own(name) and name not in scores:
                found.setdefault(name, defaultdict(list))[record.step].append(value)
    figures = {
        name: [
            MetricPoint(step, name, fmean(values), None, len(values), 0, 0) for step, values in sorted(by_step.items())
        ]
        for name, by_step in found.items()
    }
    if len({point.value for point in figures[POOL]}) < 2:
        del figures[POOL]
    return figures


def is_own(name: str) -> bool:
    """Tell whether a step's figure is the method's own, and not one of which evorun makes tables or other pictures."""
    return name not in _SHOWN_ELSEWHERE and not SHOWN_OF_ISLANDS.fullmatch(name)


def is_of_few(point: MetricPoint, problems: int) -> bool:
    """Tell whether fewer than half of a run's problems have the figure at this step."""
    return point.n < _MIN_SHARE * problems


def make_method_table(figures: MethodFigures) -> Table:
    """Return the figures' means at their first and last step, for readers."""
    columns = [
        *word_columns("figure"),
        *figure_columns("first step", "last step", format=text.number),
        *figure_columns("problems that took the last step", format=text.count),
    ]
    rows = [(text.words(name), points[0].value, points[-1].value, points[-1].n) for name, points in figures.items()]
    return Table(columns, list(rows))


def make_method_data_table(figures: MethodFigures) -> Table:
    """Return all the figures' points, for other programs."""
    points = [(name, point.step, point.value, point.n) for name, line in figures.items() for point in line]
    return make_data_table("method_figures", ("figure", "step", "mean", "n"), points)

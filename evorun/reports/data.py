"""The figures of one run as tables: for other programs, and those that a page and a terminal show."""

from collections.abc import Iterator, Sequence

from evorun.reports import text
from evorun.reports.axes import Axes
from evorun.reports.overview import Curves, Outcome
from evorun.reports.tables import Cell, Table, data_table, figure_columns, word_columns
from evorun.runs.schema import Metric, MetricPoint

_FIGURE = ("mean", "low", "high", "n")
"""Columns of a figure with its 95 % interval."""


def data_tables(
    outcome: Outcome, curves: Curves, settings: Sequence[tuple[str, str, str]], along: Axes
) -> dict[str, Table]:
    """Return the tables of a run by name; along: the axes of its curves."""
    scored = {score.name for score in outcome.scores}
    others = [(name, *_cells(metric)) for name, metric in outcome.metrics.items() if name not in scored]
    axes = [axis.label.replace(" ", "_") for axis in along.values()]
    tables = [
        data_table("scores", ("stratum", "score", *_FIGURE), list(_scores(outcome))),
        data_table("figures", ("figure", *_FIGURE), others),
        data_table("curves", ("score", "stratum", axes[0], *_FIGURE, *axes[1:]), list(_curves(curves, along))),
        data_table("training", ("figure", "step", "value", "calls", "tokens"), list(_training(curves))),
        cost_table(outcome),
        data_table("settings", ("setting", "value", "decides"), settings),
    ]
    return {table.name: table for table in tables}


def cost_table(outcome: Outcome) -> Table:
    """Return the cost of a run by role."""
    took = f" ({text.duration(outcome.manifest.seconds)})" if outcome.manifest.seconds is not None else ""
    return Table(
        [
            *word_columns("role", format=text.role_words),
            *figure_columns("calls", "prompt tokens", "completion tokens", format=text.count),
            *figure_columns("model time, summed over calls", format=text.duration),
        ],
        [
            (role, spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.seconds)
            for role, spent in outcome.cost.items()
        ],
        title=f"cost{took}",
        name="cost",
        fields=("role", "calls", "prompt_tokens", "completion_tokens", "seconds"),
        total=list(outcome.cost).index("total") if "total" in outcome.cost else None,
    )


def wasted_table(outcome: Outcome) -> Table:
    """Return the attempts of model calls that gave no answer: what came instead, how often, and the tokens lost."""
    return Table(
        [
            *word_columns("what came", format=text.wasted_words),
            *figure_columns("attempts", "tokens, partly estimated", format=text.count),
        ],
        [(kind, lost.attempts, lost.tokens) for kind, lost in outcome.wasted.items()],
        title="attempts of model calls without an answer",
    )


def _cells(figure: Metric | MetricPoint) -> tuple[Cell, ...]:
    low, high = figure.ci95 or (None, None)
    return figure.value, low, high, figure.n


def _scores(outcome: Outcome) -> Iterator[Sequence[Cell]]:
    for stratum, metrics in (*outcome.by_stratum.items(), ("all", outcome.metrics)):
        for score in outcome.scores:
            if score.name in metrics:
                yield (stratum, score.name, *_cells(metrics[score.name]))


def _curves(curves: Curves, along: Axes) -> Iterator[Sequence[Cell]]:
    for name, points in (*curves.series.items(), *curves.scores.items()):
        score, _, stratum = name.partition("/")
        for point in points:
            step, *costs = (axis.place(point, curves.problems) for axis in along.values())
            yield (score, stratum or "all", step, *_cells(point), *costs)


def _training(curves: Curves) -> Iterator[Sequence[Cell]]:
    for name, points in curves.training.items():
        for point in points:
            yield (name, point.step, point.value, point.calls, point.tokens)

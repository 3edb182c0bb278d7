"""The tables of one run: scores and cost, as a page and a terminal show them, and figures for other programs."""

import math
from collections.abc import Iterator, Sequence

from evorun.reports import text
from evorun.reports.axes import Axes
from evorun.reports.overview import Curves, Outcome
from evorun.reports.tables import Cell, Table, data_table, figure_columns, word_columns
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

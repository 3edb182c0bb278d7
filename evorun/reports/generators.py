"""The figure of several generators in one run: how good the responses of each are, and what a call of it costs."""

from collections.abc import Mapping

from evorun.reports.drawing import (
    RUNS,
    Drawing,
    cost_axis,
    draw_interval,
    legend_above,
    make_drawing,
    open_figure,
    or_nan,
    percent_axis,
    wrap_name,
)
from evorun.reports.text import label
from evorun.runs.schema import Metric, RoleCost
from evorun.runs.scores import Score


def draw_generators(
    figures: Mapping[str, Metric], cost: Mapping[str, RoleCost], answered_by: Mapping[str, str], score: Score
) -> Drawing | None:
    """Draw the mean score of each generator's responses against the price of a call, or its tokens without prices.

    figures: the mean scores, by call role, as are `cost` and `answered_by`, the models' names. None below two
    generators.
    """
    roles = [role for role, figure in figures.items() if figure.value is not None and role in cost and cost[role].calls]
    if len(roles) < 2:
        return None
    prices = [cost[role].price for role in roles]
    priced = None not in prices
    with open_figure(6.6, 3.0) as figure:
        axes = figure.subplots()
        for number, (role, price) in enumerate(zip(roles, prices, strict=True)):
            spent, colour = cost[role], RUNS[number % len(RUNS)]
            x = (spent.tokens if price is None or not priced else price) / spent.calls
            draw_interval(axes, x, figures[role].ci95, colour)
            name = wrap_name(answered_by.get(role, role))
            axes.plot([x], [or_nan(figures[role].value)], color=colour, marker="o", linestyle="none", label=name)
        axes.set_xlim(left=0)
        cost_axis(axes, in_dollars=priced)
        if score.rate:
            percent_axis(axes)
        axes.set_xlabel("price per call" if priced else "tokens per call")
        axes.set_ylabel(f"{label(score)} of its responses")
        legend_above(axes)
        return make_drawing(figure, "generators", "Responses of each model against their cost")

"""Final scores against the level of a setting that all methods ran at: a line for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evorun.reports.comparison.arms import Arm
from evorun.reports.comparison.comparison import Panel
from evorun.reports.comparison.levels import Factorial
from evorun.reports.comparison.plots import Style, format_cost_axis, scale_by_magnitude
from evorun.reports.comparison.rows import make_row
from evorun.reports.drawing import (
    Drawing,
    draw_interval,
    legend_above,
    make_drawing,
    open_figure,
    or_nan,
    percent_axis,
    wrap_name,
)
from evorun.reports.text import label, name_score, sentence
from evorun.runs.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_TICKS = 8
"""Maximum levels with a tick each (ours)."""


def draw_levels(factorial: Factorial, panel: Panel, styles: Mapping[str, Style], name: str) -> Drawing | None:
    """Draw each method's final primary score against the level, or against its calls where levels are budgets.

    A method has the colour that its first arm has elsewhere. None where levels are words of another setting.
    """
    score, places = panel.primary, factorial.places
    if places is None:
        return None
    rows = []
    marks = {arms[0].runs[0].manifest.method: _choose_style(arms, styles)["marker"] for arms in factorial.arms.values()}
    with open_figure(6.6, 3.4) as figure:
        axes = figure.subplots()
        for method, arms in {**factorial.arms, **factorial.baselines}.items():
            style = dict(_choose_style(arms, styles))
            if method in factorial.baselines:  # whose mark says of which method it is
                style["marker"] = marks.get(arms[0].runs[0].manifest.method, "")
            found = [make_row(arm) for arm in arms]
            values = [row.get_metric(score.name).value for row in found]
            axes.plot(places[method], list(map(or_nan, values)), **style, label=wrap_name(method))
            for arm, place, row, value in zip(arms, places[method], found, values, strict=True):
                interval = row.get_interval(score.name)
                draw_interval(axes, place, interval, str(style["color"]))
                rows.append((name, arm.name, "", "", None, place, value, *(interval or (None, None))))
        _format_axis(factorial, axes, [place for row in places.values() for place in row])
        if score.rate:
            percent_axis(axes)
        against = "calls" if factorial.by_calls else factorial.key
        axes.set_xlabel("calls per problem" if factorial.by_calls else printable(factorial.key))
        axes.set_ylabel(label(score))
        legend_above(axes)
        title = sentence(f"{name_score(score)} on {printable(panel.task)} against {printable(against)}")
        return replace(make_drawing(figure, name, title), points=rows)


def _choose_style(arms: Sequence[Arm], styles: Mapping[str, Style]) -> Style:
    """Return the style of the arm that began first: it stays when levels are added."""
    return styles[min(arms, key=lambda arm: (arm.started, arm.name)).name]


def _format_axis(factorial: Factorial, axes: "Axes", places: Sequence[float]) -> None:
    """Choose scale and ticks of the horizontal axis: of few numbers, each has its own."""
    if factorial.by_calls:
        format_cost_axis(axes, places, places, in_dollars=False)
        return
    scale_by_magnitude(axes, places, places)
    if len(factorial.levels) <= _MAX_TICKS:
        axes.set_xticks(next(iter((factorial.places or {}).values())), factorial.levels)

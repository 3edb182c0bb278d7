"""The figures of a comparison, task by task: a colour and a mark for each method, the same in all of them."""

import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from evorun.reports.comparison.arms import Arm, Point, run_curve
from evorun.reports.comparison.comparison import Comparison, Panel
from evorun.reports.comparison.rows import Row, row_of
from evorun.reports.drawing import (
    CARD,
    INK,
    RUNS,
    Drawing,
    XAxis,
    drawing_of,
    figure_of,
    integer_axis,
    number,
)
from evorun.reports.text import file_stem, label, value, words
from evorun.runs.printable import printable
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = "osD^vPX*"
_DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)))
_FLOOR_DASHES = (0, (2, 2))
_SEED: Mapping[str, Any] = {"alpha": 0.45, "linewidth": 0.8, "markersize": 3}
_LOG_SPAN = 30
"""Costs whose largest is that many times the smallest are drawn on a logarithmic axis."""
_LONGEST_NAME = 44
"""Characters of a name above a bar: its figure stands at the end of the same line, and the table has the whole name."""

Style = Mapping[str, Any]
"""Matplotlib's settings of a line."""


def styles_of(comparison: Comparison) -> dict[str, Style]:
    """Return each arm's style, by its name: a colour for each method, grey dashes for all floors."""
    methods = comparison.methods
    return {arm.name: _style(methods.index(arm.method), floor=arm.floor) for arm in comparison.arms}


def _style(index: int, *, floor: bool) -> Style:
    # with more methods than colours, dashes and other marks tell a colour's methods apart, in print too
    rounds = index // len(RUNS)
    return {
        "color": INK if floor else RUNS[index % len(RUNS)],
        "linestyle": _FLOOR_DASHES if floor else _DASHES[rounds % len(_DASHES)],
        "marker": _MARKS[index % len(_MARKS)],
        "markersize": 5,
        "linewidth": 1.8,
    }


def swatch(style: Style) -> str:
    """Draw a line with its mark, for a legend, as inline SVG."""
    with figure_of(0.5, 0.2) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.plot([0, 1, 2], [0, 0, 0], markevery=[1], **style)
        return drawing_of(figure, f"swatch-{style['color']}-{style['marker']}", "").inline


def curves_plot(panel: Panel, score: Score, x: XAxis, styles: Mapping[str, Style], name: str) -> Drawing | None:
    """Draw a score of each arm against generations, calls or tokens; None without points.

    An arm of several runs is their mean, with its band, and a thin line for each run. A method of one step is a mark
    with its interval; against generations the mark's horizontal position means nothing, and a dotted line extends its
    level.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    drawn = [(index, arm, points) for index, arm in enumerate(panel.arms) if (points := arm.curve(score, x))]
    if not drawn:
        return None
    with figure_of(4.6, 3.4) as figure:
        axes = figure.subplots()
        one_step = [(index, arm, points[0]) for index, arm, points in drawn if len(points) == 1]
        for index, arm, points in ((index, arm, points) for index, arm, points in drawn if len(points) > 1):
            _curve(axes, points, styles[arm.name], f"{file_stem(name)}-{index}", band=panel.has_bands and not arm.floor)
            for seed, of_run in _seeds(arm, score, x):
                line = {**styles[arm.name], **_SEED, "marker": "" if len(of_run) > 1 else "."}
                gid = f"{file_stem(name)}-{index}-seed-{seed}"
                axes.plot([point.x for point in of_run], [point.value for point in of_run], **line, gid=gid)
        # after the curves, whose range they are spread over
        last = max(axes.get_xlim()[1], 1.0)
        for rank, (index, arm, point) in enumerate(one_step):
            at = last * (rank + 1) / (len(one_step) + 1) if x == "step" else None
            gid = f"{file_stem(name)}-{index}"
            for seed, of_run in _seeds(arm, score, x):
                mark = {**styles[arm.name], **_SEED}
                places = [point.x if at is None else at for point in of_run]
                axes.plot(places, [point.value for point in of_run], **mark, gid=f"{gid}-seed-{seed}")
            _mark(axes, point, at, styles[arm.name], gid)
        if score.rate:
            # the rates that occur, to the next tenth: lines are read by their distances, not from zero
            low, high = axes.dataLim.intervaly
            axes.set_ylim(max(math.floor(low * 10) / 10, 0) - 0.01, min(math.ceil(high * 10) / 10, 1) + 0.01)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_ylabel(label(score))
        runs = [point.x for arm in panel.arms for run in arm.runs for point in run_curve(run, score, x)]
        _x_axis(axes, runs, panel.labels[x], of_cost=x != "step")
        title = f"{words(score.name).capitalize()} on {printable(panel.task)} against {panel.labels[x]}"
        return drawing_of(figure, name, title)


def bars_plot(panel: Panel, score: Score, styles: Mapping[str, Style], name: str) -> Drawing | None:
    """Draw the score that each arm has ended with, as a bar with its 95 % interval; None without figures.

    Its runs are small circles, the paper's figure is a hollow diamond, a floor is a dashed outline.
    """
    drawn = [(arm, row) for arm in panel.arms if (row := row_of(arm)).figure(score.name).n]
    if not drawn:
        return None
    with figure_of(4.6, 0.5 + 0.4 * len(drawn)) as figure:
        axes = figure.subplots()
        for y, (arm, row) in enumerate(drawn):
            _bar(axes, y, arm, row, score, styles[arm.name])
        axes.set_yticks([])
        axes.set_ylim(len(drawn) - 0.3, -0.7)
        if score.rate:
            axes.set_xlim(0, 1.02)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        else:
            axes.set_xlabel(label(score))
        axes.grid(visible=True, axis="x")
        return drawing_of(figure, name, f"Final {words(score.name)} on {printable(panel.task)}")


def _bar(axes: "Axes", y: float, arm: Arm, row: Row, score: Score, style: Style) -> None:
    """Draw a bar below its name and its figure: beside it the name would take half of a narrow figure."""
    metric = row.figure(score.name)
    look = {"color": style["color"], "alpha": 0.85, "linewidth": 0}
    if arm.floor:
        look = {"facecolor": "none", "edgecolor": style["color"], "linestyle": "--", "linewidth": 1.2}
    axes.barh(y, number(metric.value), height=0.36, **look)
    if metric.ci95 is not None:
        for colour, width in ((CARD, 4.0), (INK, 1.6)):  # a rim, to be seen on any bar
            axes.hlines(y, *metric.ci95, color=colour, linewidth=width)
    if len(arm.runs) > 1:
        finals = [number(run.metric(score.name).value) for run in arm.runs]
        axes.plot(
            finals,
            [y] * len(finals),
            "o",
            markersize=3.2,
            color=INK,
            markerfacecolor=CARD,
            markeredgewidth=0.8,
            clip_on=False,
        )
    if (reported := row.reported_figure(score.name)) is not None:
        axes.plot(reported, y, marker="D", markersize=6.5, color=INK, markerfacecolor=CARD, clip_on=False)
    across = axes.get_yaxis_transform()
    name = shorten(printable(arm.label), _LONGEST_NAME, placeholder=" …")
    axes.text(0, y - 0.38, name, transform=across, va="center")
    axes.text(1, y - 0.38, value(score, metric.value), transform=across, va="center", ha="right")


def _curve(axes: "Axes", points: Sequence[Point], style: Style, gid: str, *, band: bool) -> None:
    xs = [point.x for point in points]
    # a mark at every point would hide the line
    axes.plot(xs, [point.value for point in points], markevery=max(1, len(points) // 8), **style, gid=gid)
    if band and any(point.ci95 for point in points):
        gap = (math.nan, math.nan)
        lows, highs = zip(*(point.ci95 or gap for point in points), strict=True)
        axes.fill_between(xs, lows, highs, color=style["color"], alpha=0.12, linewidth=0, gid=f"{gid}-band")


def _seeds(arm: Arm, score: Score, x: XAxis) -> list[tuple[int, list[Point]]]:
    """Return the curves of an arm's runs, with their positions; none of a single run, which is the arm's own."""
    return list(enumerate(run_curve(run, score, x) for run in arm.runs)) if len(arm.runs) > 1 else []


def _mark(axes: "Axes", point: Point, at: float | None, style: Style, gid: str) -> None:
    """Draw a curve of one point, against generations at a place of no meaning, with a dotted line on its level."""
    if at is not None:
        axes.axhline(point.value, color=style["color"], linestyle=":", linewidth=1.3)
    place = point.x if at is None else at
    if point.ci95 is not None:
        axes.vlines(place, *point.ci95, color=style["color"], alpha=0.6, linewidth=1.6)
    axes.plot([place], [point.value], **style, gid=gid)


def _x_axis(axes: "Axes", values: Sequence[float], title: str, *, of_cost: bool) -> None:
    from matplotlib.ticker import EngFormatter, NullFormatter

    axes.set_xlabel(title)
    if not of_cost:
        return integer_axis(axes)
    # methods differ in cost by orders of magnitude: on a linear axis the cheap ones would share one pixel
    if min(values) > 0 and max(values) >= _LOG_SPAN * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0, right=max(values) * 1.05 or 1)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    return None

"""The figures of a comparison, as inline SVG: a colour and a mark for each run, the same in all of them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evorun.reports.comparison.comparison import Row
from evorun.reports.comparison.runs import Run
from evorun.reports.drawing import CARD, INK, RUNS, X_LABELS, XAxis, figure_of, integer_axis, number, svg_of
from evorun.reports.text import label, words
from evorun.runs.printable import printable
from evorun.runs.schema import MetricPoint
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINES = 16
"""Runs that are drawn; all of them are in the table."""

MAX_BANDS = 8
"""Lines with bands; with more, bands would only cover each other."""
_MARKS = "osD^vPX*"
_DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)))
_LOG_SPAN = 30
"""Costs whose largest is that many times the smallest are drawn on a logarithmic axis."""


def swatch(index: int) -> str:
    """Draw the line and mark of a run, for a legend."""
    with figure_of(0.5, 0.2) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.plot([0, 1, 2], [0, 0, 0], markevery=[1], **_style(index))
        return svg_of(figure, f"swatch-{index}", "")


def curves_plot(runs: Sequence[Run], score: Score, x: XAxis) -> str | None:
    """Draw a score of each run against generations, calls or tokens; None without points.

    Up to `MAX_BANDS` runs have 95 % bands. A method of one step is a mark with its interval; against generations the
    mark's horizontal position means nothing, and a dotted line extends its level.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    curves = [[p for p in run.curves.get(score.name, ()) if p.value is not None] for run in runs[:MAX_LINES]]
    drawn = [(index, points) for index, points in enumerate(curves) if points]
    if not drawn:
        return None
    with figure_of(*((10.4, 4.0) if x == "step" else (5.2, 3.6))) as figure:
        axes = figure.subplots()
        for index, points in ((index, points) for index, points in drawn if len(points) > 1):
            xs = [getattr(point, x) for point in points]
            style = _style(index)
            # a mark at every point would hide the line
            axes.plot(xs, [number(point.value) for point in points], markevery=max(1, len(points) // 8), **style)
            banded = [(at, *point.ci95) for at, point in zip(xs, points, strict=True) if point.ci95 is not None]
            if banded and len(drawn) <= MAX_BANDS:
                at, lows, highs = zip(*banded, strict=True)
                axes.fill_between(at, lows, highs, color=style["color"], alpha=0.12, linewidth=0)
        # after the curves, whose range they are spread over
        _one_step_methods(axes, [(index, points[0]) for index, points in drawn if len(points) == 1], x)
        if score.rate:
            # the rates that occur, to the next tenth: lines are read by their distances, not from zero
            low, high = axes.dataLim.intervaly
            axes.set_ylim(max(math.floor(low * 10) / 10, 0) - 0.01, min(math.ceil(high * 10) / 10, 1) + 0.01)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_ylabel(label(score))
        _x_axis(axes, [getattr(point, x) for _, points in drawn for point in points], x)
        title = f"{words(score.name).capitalize()} of each run against {X_LABELS[x]}"
        return svg_of(figure, f"{score.name}-{x}", title)


def bars_plot(rows: Sequence[Row], score: Score) -> str | None:
    """Draw the score that each run has ended with, as a bar with its 95 % interval.

    The paper's figure is a hollow mark. None without figures.
    """
    figures = [row.figure(score.name) for row in rows[:MAX_LINES]]
    drawn = [(index, rows[index], metric) for index, metric in enumerate(figures) if metric.n]
    if not drawn:
        return None
    with figure_of(10.4, 0.7 + 0.34 * len(drawn)) as figure:
        axes = figure.subplots()
        for y, (index, row, metric) in enumerate(drawn):
            axes.barh(y, number(metric.value), height=0.62, color=_colour(index), alpha=0.85, linewidth=0)
            if metric.ci95 is not None:
                for colour, width in ((CARD, 4.0), (INK, 1.6)):  # a rim, to be seen on any bar
                    axes.hlines(y, *metric.ci95, color=colour, linewidth=width)
            reported = row.reported_figure(score.name)
            if reported is not None:
                axes.plot(reported, y, marker="D", markersize=6.5, color=INK, markerfacecolor=CARD)
        axes.set_yticks(range(len(drawn)), [printable(row.name)[:48] for _, row, _ in drawn])
        if score.rate:
            axes.set_xlim(0, 1.02)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        else:
            axes.set_xlabel(label(score))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        return svg_of(figure, f"{score.name}-bars", f"Final {words(score.name)} of each run")


def _one_step_methods(axes: "Axes", points: Sequence[tuple[int, MetricPoint]], x: XAxis) -> None:
    """Draw each as a mark with its interval; against generations, side by side on their levels."""
    last = max(axes.get_xlim()[1], 1.0)
    for rank, (index, point) in enumerate(points):
        style = _style(index)
        at = last * (rank + 1) / (len(points) + 1) if x == "step" else getattr(point, x)
        if x == "step" and point.value is not None:
            axes.axhline(point.value, color=style["color"], linestyle=":", linewidth=1.3)
        if point.ci95 is not None:
            axes.vlines(at, *point.ci95, color=style["color"], alpha=0.6, linewidth=1.6)
        axes.plot([at], [number(point.value)], **style)


def _x_axis(axes: "Axes", values: Sequence[float], x: XAxis) -> None:
    from matplotlib.ticker import EngFormatter, NullFormatter

    axes.set_xlabel(X_LABELS[x])
    if x == "step":
        return integer_axis(axes)
    # methods differ in cost by orders of magnitude: on a linear axis the cheap ones would share one pixel
    if min(values) > 0 and max(values) >= _LOG_SPAN * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0, right=max(values) * 1.05 or 1)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    return None


def _style(index: int) -> dict[str, Any]:
    # with more runs than colours, dashes and other marks tell a colour's runs apart, in print too
    rounds = index // len(RUNS)
    return {
        "color": _colour(index),
        "linestyle": _DASHES[rounds % len(_DASHES)],
        "marker": _MARKS[(index + rounds) % len(_MARKS)],
        "markersize": 5.5,
        "linewidth": 1.8,
    }


def _colour(index: int) -> str:
    return RUNS[index % len(RUNS)]

"""The figures of one run's page, as inline SVG."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evorun.reports.drawing import SERIES, X_LABELS, XAxis, figure_of, integer_axis, number, svg_of, unit_axis
from evorun.reports.judge import Bin
from evorun.reports.text import words
from evorun.runs.printable import printable
from evorun.runs.results import Proportion
from evorun.runs.schema import MetricPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 12
"""Strata that get a panel of their own; all of them are in the table."""


def accuracy_plot(points: Sequence[MetricPoint], x: XAxis) -> str | None:
    """Draw accuracy with its 95 % band against generations, calls or tokens; None without points."""
    drawn = [p for p in points if getattr(p, x) is not None]
    if not drawn:
        return None
    with figure_of(5.2, 3.1) as figure:
        axes = figure.subplots()
        _accuracy_axes(axes, drawn, x)
        axes.set_ylabel("accuracy")
        return svg_of(figure, f"accuracy-{x}", f"Accuracy against {X_LABELS[x]}")


def score_plot(name: str, points: Sequence[MetricPoint], x: XAxis) -> str | None:
    """Draw a score's mean with its 95 % band against generations, calls or tokens; None without points."""
    if not points:
        return None
    with figure_of(5.2, 3.1) as figure:
        axes = figure.subplots()
        _curve(axes, points, x)
        axes.set_ylabel(words(name))
        return svg_of(figure, f"{name}-{x}", f"{words(name).capitalize()} against {X_LABELS[x]}")


def scores_plot(series: Mapping[str, Sequence[MetricPoint]]) -> str | None:
    """Draw scores by generation, one panel a score with its own scale; None without points."""
    panels = [(words(name), points) for name, points in series.items() if points]
    return _panels(panels, "scores", "Scores by generation", of_accuracy=False)


def training_plot(series: Mapping[str, Sequence[MetricPoint]]) -> str | None:
    """Draw what training steps measured, one panel a figure with its own scale; None without points."""
    panels = [(words(name), points) for name, points in series.items() if len({p.value for p in points}) > 1]
    return _panels(panels, "training", "What training steps measured", of_accuracy=False, label_of_x="training step")


def strata_plot(series: Mapping[str, Sequence[MetricPoint]]) -> str | None:
    """Draw accuracy by generation, one panel a stratum; None without points."""
    panels = [(printable(name), points) for name, points in series.items() if points]
    return _panels(panels, "accuracy-strata", "Accuracy by generation in each stratum", of_accuracy=True)


def _panels(
    panels: Sequence[tuple[str, Sequence[MetricPoint]]],
    name: str,
    label: str,
    *,
    of_accuracy: bool,
    label_of_x: str | None = None,
) -> str | None:
    if not panels:
        return None
    drawn = panels[:MAX_PANELS]
    columns = min(len(drawn), 3)
    rows = -(-len(drawn) // columns)
    with figure_of(10.4, 2.7 * rows) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=of_accuracy)
        for axes, (title, points) in zip(grid.flat, drawn, strict=False):
            (_accuracy_axes if of_accuracy else _curve)(axes, points, "step")
            axes.set_title(title[:40])
            if label_of_x is not None:
                axes.set_xlabel(label_of_x)
        for axes in grid.flat[len(drawn) :]:
            axes.remove()
        for axes in grid[:, 0] if of_accuracy else ():
            axes.set_ylabel("accuracy")
        return svg_of(figure, name, label)


def decisive_plot(by_step: dict[int, Proportion]) -> str | None:
    """Draw the share of decisive duels by generation, with 95 % intervals; None without duels."""
    steps = sorted(step for step, share in by_step.items() if share.n)
    if not steps:
        return None
    with figure_of(5.2, 2.8) as figure:
        axes = figure.subplots()
        _points_with_bars(axes, steps, [by_step[step] for step in steps])
        unit_axis(axes)
        integer_axis(axes)
        axes.set_xlabel("generation")
        axes.set_ylabel("decisive share of duels")
        return svg_of(figure, "decisive", "Decisive share of duels by generation")


def calibration_plot(bins: Sequence[Bin]) -> str | None:
    """Draw the share of right candidates by posterior mean, with 95 % intervals; None with fewer than two groups."""
    if len(bins) < 2:
        return None
    with figure_of(5.2, 2.8) as figure:
        axes = figure.subplots()
        _points_with_bars(axes, [(b.low + b.high) / 2 for b in bins], [b.correct for b in bins])
        unit_axis(axes)
        axes.set_xlabel("posterior mean (middle of the group)")
        axes.set_ylabel("right candidates")
        return svg_of(figure, "calibration", "Share of right candidates by posterior mean")


def _accuracy_axes(axes: "Axes", points: Sequence[MetricPoint], x: XAxis) -> None:
    _curve(axes, points, x)
    unit_axis(axes)


def _curve(axes: "Axes", points: Sequence[MetricPoint], x: XAxis) -> None:
    from matplotlib.ticker import EngFormatter

    xs = [getattr(p, x) for p in points]
    axes.plot(xs, [number(p.value) for p in points], color=SERIES, marker="o")
    banded = [(at, *p.ci95) for at, p in zip(xs, points, strict=True) if p.ci95 is not None]
    if len(banded) == len(points) > 1:
        lows, highs = [low for _, low, _ in banded], [high for _, _, high in banded]
        axes.fill_between(xs, lows, highs, color=SERIES, alpha=0.18, linewidth=0)
    else:
        for at, low, high in banded:
            axes.vlines(at, low, high, color=SERIES, alpha=0.5)
    if x == "step":
        integer_axis(axes)
    else:
        axes.set_xlim(left=0, right=max(xs) * 1.05 or 1)
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel(X_LABELS[x])


def _points_with_bars(axes: "Axes", xs: Sequence[float], shares: Sequence[Proportion]) -> None:
    for x, share in zip(xs, shares, strict=True):
        if share.ci95 is not None:
            axes.vlines(x, *share.ci95, color=SERIES, alpha=0.45, linewidth=2)
    axes.plot(xs, [number(share.value) for share in shares], color=SERIES, marker="o")

"""The figures of one run's page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evorun.reports.axes import OF_TRAINING, Axes, Axis, XAxis
from evorun.reports.drawing import (
    SERIES,
    Drawing,
    in_lines,
    integer_axis,
    make_drawing,
    number,
    open_figure,
    score_axis,
    unit_axis,
)
from evorun.reports.figures import training_words
from evorun.reports.text import label, words
from evorun.runs.aggregates import Bin
from evorun.runs.printable import printable
from evorun.runs.schema import Metric, MetricPoint
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Canvas

MAX_PANELS = 12
"""Strata that get a panel of their own; all of them are in the table."""
MAX_TRAINING_PANELS = 24
"""Figures of training steps that do: PPO has some twenty."""
_TITLE = 40
"""Characters of a line of a panel's title: so many stand side by side in a third of a page."""

MOST_MARKS = 40
"""Points of a curve that are marked one by one; the marks of more would be a thick line."""


@dataclass(frozen=True)
class RunPlots:
    """Draws the curves of one run."""

    along: Axes
    problems: int
    """Of the run, on which costs of the whole run depend."""

    def score(
        self, score: Score, points: Sequence[MetricPoint], x: XAxis, *, whole_range: bool = False
    ) -> Drawing | None:
        """Draw a score's mean with its 95 % band against steps, calls or tokens; None without points."""
        drawn = [p for p in points if p.value is not None]
        if not drawn:
            return None
        with open_figure(5.2, 3.1) as figure:
            axes = figure.subplots()
            _curve(axes, drawn, self.along[x], self.problems)
            if whole_range:
                score_axis(axes, score)
            axes.set_ylabel(label(score))
            title = f"{words(score.name).capitalize()} against {self.along[x].label}"
            return make_drawing(figure, f"{score.name}-{x}", title)

    def scores(self, scores: Sequence[Score], series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw scores by step, one panel a score with its own scale; None without points."""
        panels = [(label(score), points) for score in scores if (points := series.get(score.name))]
        return _panels(panels, "scores", f"Scores by {self.along['step'].label}", self.along["step"])

    def strata(self, score: Score, series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw the primary score by step, one panel a stratum; None without points."""
        panels = [(printable(name), points) for name, points in series.items() if points]
        title = f"{words(score.name).capitalize()} by {self.along['step'].label} in each stratum"
        return _panels(panels, f"{score.name}-strata", title, self.along["step"], shared=score)

    def decisive(self, by_step: Mapping[int, Metric]) -> Drawing | None:
        """Draw the share of decisive duels by step, with 95 % intervals; None without duels."""
        steps = sorted(step for step, share in by_step.items() if share.n)
        if not steps:
            return None
        with open_figure(5.2, 2.8) as figure:
            axes = figure.subplots()
            _points_with_bars(axes, steps, [by_step[step] for step in steps])
            unit_axis(axes)
            integer_axis(axes)
            axes.set_xlabel(self.along["step"].label)
            axes.set_ylabel("decisive share of duels")
            return make_drawing(figure, "decisive", f"Decisive share of duels by {self.along['step'].label}")


def training_plot(series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
    """Draw the figures of training steps, one panel a figure with its own scale; None without points."""
    # a figure that never changes (a constant learning rate) would take a panel from one that does
    panels = [(training_words(name), points) for name, points in series.items() if len({p.value for p in points}) > 1]
    steps = OF_TRAINING["step"]
    return _panels(panels, "training", "What training steps measured", steps, most=MAX_TRAINING_PANELS)


def _panels(
    panels: Sequence[tuple[str, Sequence[MetricPoint]]],
    name: str,
    title: str,
    steps: Axis,
    *,
    shared: Score | None = None,
    most: int = MAX_PANELS,
) -> Drawing | None:
    if not panels:
        return None
    drawn = panels[:most]
    columns = min(len(drawn), 3)
    rows = -(-len(drawn) // columns)
    with open_figure(10.4, 2.7 * rows) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=shared is not None)
        for axes, (name_of_panel, points) in zip(grid.flat, drawn, strict=False):
            _curve(axes, points, steps)
            if shared is not None:
                score_axis(axes, shared)
            axes.set_title(in_lines(name_of_panel, _TITLE))
        for axes in grid.flat[len(drawn) :]:
            axes.remove()
        if shared is not None:
            for axes in grid[:, 0]:
                axes.set_ylabel(label(shared))
        return make_drawing(figure, name, title)


def calibration_plot(bins: Sequence[Bin], measure: Score) -> Drawing | None:
    """Draw how good candidates are by posterior mean, with 95 % intervals; None with fewer than two groups."""
    if len(bins) < 2:
        return None
    with open_figure(5.2, 2.8) as figure:
        axes = figure.subplots()
        _points_with_bars(axes, [b.mean for b in bins], [b.figure for b in bins])
        score_axis(axes, measure)
        axes.set_xlabel("posterior mean (mean of the group)")
        right = measure.is_correctness
        axes.set_ylabel("right candidates" if right else label(measure))
        title = "Share of right candidates" if right else words(measure.name).capitalize()
        return make_drawing(figure, "calibration", f"{title} by posterior mean")


def _curve(axes: "Canvas", points: Sequence[MetricPoint], along: Axis, problems: int = 1) -> None:
    from matplotlib.ticker import EngFormatter

    xs = [along.place(p, problems) for p in points]
    axes.set_xlabel(along.label)
    axes.plot(xs, [number(p.value) for p in points], color=SERIES, marker="o" if len(xs) <= MOST_MARKS else None)
    banded = [(at, *p.ci95) for at, p in zip(xs, points, strict=True) if p.ci95 is not None]
    # a band over a gap would claim an interval there; then each point has a bar of its own
    if len(banded) == len(points) > 1:
        lows, highs = [low for _, low, _ in banded], [high for _, _, high in banded]
        axes.fill_between(xs, lows, highs, color=SERIES, alpha=0.18, linewidth=0)
    else:
        for at, low, high in banded:
            axes.vlines(at, low, high, color=SERIES, alpha=0.5)
    if along.name == "step":
        integer_axis(axes)
    else:
        axes.set_xlim(left=0, right=max(xs) * 1.05 or 1)
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _points_with_bars(axes: "Canvas", xs: Sequence[float], figures: Sequence[Metric]) -> None:
    for x, figure in zip(xs, figures, strict=True):
        if figure.ci95 is not None:
            axes.vlines(x, *figure.ci95, color=SERIES, alpha=0.45, linewidth=2)
    axes.plot(xs, [number(figure.value) for figure in figures], color=SERIES, marker="o")

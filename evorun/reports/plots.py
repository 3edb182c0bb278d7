"""The figures of one run's page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evorun.reports.axes import TRAINING_AXES, Axis, AxisName, XAxes
from evorun.reports.drawing import (
    SERIES,
    Drawing,
    cost_axis,
    count_rows,
    draw_interval,
    finish_drawing,
    fit_columns,
    integer_axis,
    legend_above,
    make_drawing,
    make_panels,
    open_figure,
    or_nan,
    score_axis,
    unit_axis,
    wrap_name,
)
from evorun.reports.figures import SELECTION, describe_figure
from evorun.reports.method_figures import is_of_few
from evorun.reports.text import label, name_score, words
from evorun.runs.aggregates import Bin
from evorun.runs.printable import printable
from evorun.runs.schema import Metric, MetricPoint
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 12
"""Maximum strata with a panel; the table has all of them."""
MAX_TRAINING_PANELS = 24
"""Maximum figures of training steps with a panel: PPO has some twenty."""
_MAX_TITLE = 40
"""Maximum characters per line of a panel's title: more do not fit into a third of a page."""
MAX_MARKS = 40
"""Maximum points of a curve that are marked one by one; the marks of more would be a thick line."""


@dataclass(frozen=True)
class RunPlots:
    """Draws the curves of one run."""

    axes: XAxes
    problems: int
    """Of the run, on which costs of the whole run depend."""

    def score(
        self, score: Score, points: Sequence[MetricPoint], x: AxisName, *, whole_range: bool = False
    ) -> Drawing | None:
        """Draw a score's mean with its 95 % band against steps, calls or tokens; None without points."""
        drawn = [point for point in points if point.value is not None]
        if not drawn:
            return None
        with open_figure(5.2, 3.1) as figure:
            axes = figure.subplots()
            _draw_curve(axes, drawn, self.axes[x], self.problems)
            if whole_range:
                score_axis(axes, score)
            axes.set_ylabel(label(score))
            title = f"{name_score(score).capitalize()} against {self.axes[x].label}"
            return make_drawing(figure, f"{score.name}-{x}", title)

    def scores(self, scores: Sequence[Score], series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw scores by step, one panel per score with its own scale; None without points."""
        panels = [(label(score), points) for score in scores if (points := series.get(score.name))]
        return _draw_panels(panels, "scores", f"Scores by {self.axes['step'].label}", self.axes["step"])

    def strata(self, score: Score, series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw the primary score by step, one panel per stratum; None without points."""
        panels = [(printable(name), points) for name, points in series.items() if points]
        title = f"{name_score(score).capitalize()} by {self.axes['step'].label} in each stratum"
        return _draw_panels(panels, f"{score.name}-strata", title, self.axes["step"], shared=score)

    def selection(self, search: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw what an oracle would choose and what was returned, against calls; None with fewer than two points."""
        oracle, regret = search.get("oracle", []), search.get("regret", [])
        if len(oracle) < 2:
            return None
        axis = self.axes["calls"]
        xs = [axis.locate(point, self.problems) for point in oracle]
        best = [or_nan(point.value) for point in oracle]
        returned = [or_nan(point.value) - or_nan(lost.value) for point, lost in zip(oracle, regret, strict=True)]
        with open_figure(5.2, 3.1) as figure:
            axes = figure.subplots()
            axes.plot(xs, best, color=SERIES, linestyle="--", label="best candidate so far")
            axes.plot(xs, returned, color=SERIES, label="returned candidate")
            axes.fill_between(xs, returned, best, color=SERIES, alpha=0.18, linewidth=0)
            if min(returned) >= 0 and max(best) <= 1:
                unit_axis(axes)
            axes.set_xlim(left=0, right=max(xs) * 1.05 or 1)
            cost_axis(axes, in_dollars=False)
            legend_above(axes)
            axes.set_xlabel(axis.label)
            axes.set_ylabel("mean over problems")
            return make_drawing(figure, "selection", f"Best and returned candidate against {axis.label}")

    def search(self, search: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw diversity, beliefs and judgments by step, one panel each; None where none changes."""
        # a figure of one step would be a dot
        panels = [(words, points) for name, words in SELECTION.items() if len(points := search.get(name, [])) > 1]
        title = f"Diversity and judgment by {self.axes['step'].label}"
        return _draw_panels(panels, "search", title, self.axes["step"])

    def method(self, figures: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
        """Draw a method's own figures by step, one panel each with its own scale; None where none changes.

        Lines are dotted where they are means over fewer than half of the problems.
        """
        changing = {name: points for name, points in figures.items() if len({point.value for point in points}) > 1}
        panels = [(words(name), points) for name, points in changing.items()]
        title = f"Figures of the method by {self.axes['step'].label}"
        return _draw_panels(panels, "method_figures", title, self.axes["step"], problems=self.problems)

    def decisive(self, by_step: Mapping[int, Metric]) -> Drawing | None:
        """Draw the share of decisive duels by step, with 95 % intervals; None without duels."""
        steps = sorted(step for step, share in by_step.items() if share.n)
        if not steps:
            return None
        with open_figure(5.2, 2.8) as figure:
            axes = figure.subplots()
            _draw_estimates(axes, steps, [by_step[step] for step in steps])
            unit_axis(axes)
            step = self.axes["step"].label
            title = f"Decisive share of duels by {step}"
            return finish_drawing(axes, "decisive", title, (step, "decisive share of duels"))


def draw_training(series: Mapping[str, Sequence[MetricPoint]]) -> Drawing | None:
    """Draw the figures of training steps, one panel per figure with its own scale; None without points."""
    # a figure that never changes (a constant learning rate) would take a panel from one that does
    panels = [
        (describe_figure(name), points) for name, points in series.items() if len({point.value for point in points}) > 1
    ]
    title, step = "What training steps measured", TRAINING_AXES["step"]
    return _draw_panels(panels, "training", title, step, max_panels=MAX_TRAINING_PANELS)


def _draw_panels(
    panels: Sequence[tuple[str, Sequence[MetricPoint]]],
    name: str,
    title: str,
    step: Axis,
    *,
    shared: Score | None = None,
    max_panels: int = MAX_PANELS,
    problems: int = 0,
) -> Drawing | None:
    """Draw curves by step, one panel each, on the scale of the shared score or on their own scales.

    problems: of the run, where lines are to be dotted if they are means over few of them.
    """
    if not panels:
        return None
    drawn = panels[:max_panels]
    with open_figure(10.4, 2.7 * count_rows(len(drawn))) as figure:
        grid = make_panels(figure, len(drawn), sharey=shared is not None)
        for place, (axes, (panel_name, points)) in enumerate(zip(grid, drawn, strict=True)):
            _draw_curve(axes, points, step, dotted=[is_of_few(point, problems) for point in points])
            if shared is not None:
                score_axis(axes, shared)
                axes.set_ylabel("" if place % fit_columns(3) else label(shared))
            axes.set_title(wrap_name(panel_name, _MAX_TITLE))
        return make_drawing(figure, name, title)


def draw_calibration(bins: Sequence[Bin], measure: Score) -> Drawing | None:
    """Draw how good candidates are by posterior mean, with 95 % intervals; None with fewer than two groups."""
    if len(bins) < 2:
        return None
    with open_figure(5.2, 2.8) as figure:
        axes = figure.subplots()
        _draw_estimates(axes, [group.mean for group in bins], [group.figure for group in bins])
        score_axis(axes, measure)
        quality, title = label(measure), name_score(measure).capitalize()
        if measure.is_correctness:
            quality, title = "right candidates", "Share of right candidates"
        labels = "posterior mean (mean of the group)", quality
        return finish_drawing(axes, "calibration", f"{title} by posterior mean", labels, integers=False)


def _draw_curve(
    axes: "Axes", points: Sequence[MetricPoint], axis: Axis, problems: int = 1, dotted: Sequence[bool] = ()
) -> None:
    xs = [axis.locate(point, problems) for point in points]
    ys = [or_nan(point.value) for point in points]
    marker = "o" if len(xs) <= MAX_MARKS else None
    if any(dotted):
        axes.plot(xs, ys, color=SERIES, linestyle=":", marker=marker, markerfacecolor="white")
        ys = [math.nan if few else y for few, y in zip(dotted, ys, strict=True)]
    axes.plot(xs, ys, color=SERIES, marker=marker)
    known = [point.ci95 for point in points if point.ci95 is not None]
    # a band over a gap would claim an interval there; then each point has a bar of its own
    if len(known) == len(points) > 1:
        lows, highs = zip(*known, strict=True)
        axes.fill_between(xs, lows, highs, color=SERIES, alpha=0.18, linewidth=0)
    else:
        for x, point in zip(xs, points, strict=True):
            draw_interval(axes, x, point.ci95, SERIES)
    axes.set_xlabel(axis.label)
    if axis.name == "step":
        integer_axis(axes)
    else:
        axes.set_xlim(left=0, right=max(xs) * 1.05 or 1)
        cost_axis(axes, in_dollars=axis.name == "price")


def _draw_estimates(axes: "Axes", xs: Sequence[float], figures: Sequence[Metric]) -> None:
    for x, figure in zip(xs, figures, strict=True):
        draw_interval(axes, x, figure.ci95, SERIES)
    axes.plot(xs, [or_nan(figure.value) for figure in figures], color=SERIES, marker="o")

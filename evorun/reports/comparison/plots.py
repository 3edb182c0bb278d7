"""The figures of a comparison, task by task: a colour and a mark for each method, the same in all of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, Any

from evorun.reports.axes import TRAINING_AXES, Axis, AxisName
from evorun.reports.comparison.arms import Arm, Point, run_curve, shared_mean_curve
from evorun.reports.comparison.comparison import MAX_BANDS, ComparedRuns, Panel
from evorun.reports.comparison.rows import Row, make_row
from evorun.reports.drawing import (
    CARD,
    GREY,
    INK,
    RUNS,
    Drawing,
    LineEnd,
    compute_names_height,
    cost_axis,
    draw_interval,
    fit_name,
    integer_axis,
    label_line_ends,
    make_drawing,
    names_stand_beside,
    open_figure,
    or_nan,
    percent_axis,
    wrap_name,
)
from evorun.reports.text import file_stem, label, name_score, sentence, value
from evorun.runs.printable import printable
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = "osD^vPX*"
_DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)))
_BASELINE_DASHES = (0, (2, 2))
_LOG_SPAN = 30
"""Costs are drawn on a logarithmic axis if an arm's is at least so many times another's, of arms with a curve."""
_STEPS_SPAN = 10
"""Steps are drawn on a logarithmic axis if one method has at least so many times those of another."""
_MAX_NAME_LENGTH = 60
"""Maximum characters of a name above a bar, whose figure ends the same line; the table has the whole name."""
_WIDTH, _HEIGHT = 6.6, 3.0
"""Width of a figure and minimum height of its axes, in inches."""
_BAR, _NAME_LINE, _VALUE_LENGTH = 0.4, 0.14, 10
"""Of a bar with its name: height in inches, that of a further line of the name, and characters of the value beside."""
_NARROW_HEIGHT = 2.2
"""Height of the axes, in inches, where names stand above them."""
_ASIDE = 0.15
"""Room for marks right of the axis, in lengths of the axis."""
_MAX_MARKS = 8
_DASH, _DOT, _MAX_SHARES = 5, 1.5, 3
"""Lengths of a dash and of a dot in widths of their line, and maximum curves that share a line's length."""

POINT_COLUMNS = ("figure", "arm", "run", "stratum", "step", "x", "value", "low", "high")
"""Of the points that figures draw, as they are exported."""

Style = Mapping[str, Any]
"""Matplotlib's settings of a line."""


@dataclass(frozen=True)
class Curve:
    """An arm as a figure shows it."""

    index: int
    """Position of the arm in its panel."""
    arm: Arm
    points: Sequence[Point]
    """Of its only run, or the mean over its seeds."""
    seeds: Sequence[Sequence[Point]] = ()
    """Of each run, in the arm's order, where there are several; empty for a run without any."""


def assign_styles(comparison: ComparedRuns) -> dict[str, Style]:
    """Return each arm's style, by its name: a colour for each method, grey dashes for random baselines.

    The order in which methods began decides, not their ranks or names: a method keeps its colour when others are added.
    """
    arms = sorted(comparison.arms, key=lambda arm: (arm.started, arm.name))
    methods = list(dict.fromkeys(arm.method for arm in arms))
    return {arm.name: _style(methods.index(arm.method), is_baseline=arm.is_baseline) for arm in comparison.arms}


def _style(index: int, *, is_baseline: bool) -> Style:
    if is_baseline:
        return {"color": GREY, "linestyle": _BASELINE_DASHES, "marker": "", "markersize": 5, "linewidth": 1.0}
    # with more methods than colours, dashes and other marks tell a colour's methods apart, in print too
    rounds = index // len(RUNS)
    return {
        "color": RUNS[index % len(RUNS)],
        "linestyle": _DASHES[rounds % len(_DASHES)],
        "marker": _MARKS[index % len(_MARKS)],
        "markersize": 5,
        "linewidth": 1.8,
    }


def draw_swatch(style: Style) -> str:
    """Draw a line with its mark, for a table, as inline SVG."""
    with open_figure(0.5, 0.2) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.plot([0, 1, 2], [0, 0, 0], markevery=[1], **style)
        return make_drawing(figure, f"swatch-{style['color']}-{style['marker']}", "").inline


def collect_curves(panel: Panel, score: Score, axis: Axis) -> list[Curve]:
    """Return a score of each arm that has points against generations, calls or tokens.

    Against training steps an arm that does not train has its final score alone: its own steps are something else.
    """
    curves = []
    of_training = axis.name == "step" and any(run.outcome.trained for run in panel.runs)
    for index, arm in enumerate(panel.arms):
        kept = slice(-1, None) if of_training and not arm.runs[0].outcome.trained else slice(None)
        if points := arm.curve(score, axis)[kept]:
            if len(points) == 1 and len(arm.runs) > 1:  # its only point is its final score
                points = [replace(points[0], ci95=make_row(arm).get_interval(score.name))]
            seeds = [run_curve(run, score, axis)[kept] for run in arm.runs] if len(arm.runs) > 1 else ()
            curves.append(Curve(index, arm, points, seeds))
    return curves


def draw_curves(
    curves: Sequence[Curve],
    panel: Panel,
    score: Score,
    axis: Axis,
    styles: Mapping[str, Style],
    name: str,
    prefix: str = "",
) -> Drawing | None:
    """Draw a score's curves as `draw_lines` does; None without any. prefix: begins the title."""
    title = sentence(f"{prefix}{name_score(score)} on {printable(panel.task)} against {axis.label}")
    labels = (axis.label, label(score), title)
    return draw_lines(curves, styles, name, labels, against=axis.name, placed=axis.name != "step", rate=score.rate)


def draw_lines_over_seeds(
    panel: Panel,
    lines: Mapping[str, Sequence[Point]],
    styles: Mapping[str, Style],
    name: str,
    labels: tuple[str, str],
    limits: tuple[float | None, float | None] | None = None,
) -> Drawing | None:
    """Draw a line per run, given by its name, as `draw_lines` does; None without any. labels: of both axes.

    The mean over seeds has the steps that all of the arm's lines have. limits: of the values, where its band ends, too;
    None: it has no band.
    """
    curves, score = [], Score(name, *(limits or ()))
    for index, arm in enumerate(panel.arms):
        own = [lines.get(run.name, ()) for run in arm.runs]
        drawn = [line for line in own if line]
        points = drawn[0] if len(drawn) == 1 else shared_mean_curve(drawn, score, TRAINING_AXES["step"])
        if len(drawn) > 1 and limits is None:
            points = [replace(point, ci95=None) for point in points]
        if points:
            curves.append(Curve(index, arm, points, own if len(own) > 1 else ()))
    title = f"{sentence(labels[1])} on {printable(panel.task)} by {labels[0]}"
    return draw_lines(curves, styles, name, (*labels, title))


def draw_lines(
    curves: Sequence[Curve],
    styles: Mapping[str, Style],
    name: str,
    labels: tuple[str, str, str],
    *,
    against: AxisName = "step",
    placed: bool = True,
    rate: bool = False,
) -> Drawing | None:
    """Draw arms as lines with their names at their ends; None without any. labels: of both axes, and the title.

    An arm of several runs is their mean with its band and a thin line per run; if there are many arms, the mean alone.
    A random baseline is one grey level: its final score. An arm of one point is a mark with its interval. Unless it is
    `placed`, the mark stands right of the axis, and a dotted line extends its level: so is a method of one step drawn
    against generations.
    """
    from matplotlib.ticker import MaxNLocator

    if not curves:
        return None
    lines = [curve for curve in curves if len(curve.points) > 1 and not curve.arm.is_baseline]
    marks = [curve for curve in curves if len(curve.points) == 1 and not curve.arm.is_baseline]
    baselines = [curve for curve in curves if curve.arm.is_baseline]
    with_bands = len(lines) + len(marks) <= MAX_BANDS
    names = {curve.index: wrap_name(curve.arm.label) for curve in (*lines, *marks)}
    # several levels share a name: which is whose, the table says
    level_names = [wrap_name(curve.arm.label) for curve in baselines]
    level_names = level_names if len(baselines) < 2 else ["random baselines"]
    beside = names_stand_beside(_WIDTH)
    height = max(_HEIGHT, compute_names_height([*names.values(), *level_names])) if beside else _NARROW_HEIGHT
    gids = {curve.index: f"{file_stem(name)}-{curve.index}" for curve in curves}
    ends = []
    with open_figure(_WIDTH, height + 0.6) as figure:
        axes = figure.subplots()
        last_steps = [curve.points[-1].x for curve in lines] if against == "step" else []
        if last_steps and max(last_steps) >= _STEPS_SPAN * min(last_steps):
            axes.set_xscale("symlog", linthresh=1)  # a step 0 has its place, too
        covering = _count_covering(lines)
        for rank, curve in enumerate(lines):
            style = styles[curve.arm.name]
            dashes, dots = (_share_length(length, rank, len(lines)) for length in (_DASH, _DOT))
            _draw_curve(axes, curve, style, gids[curve.index], covering[rank])
            if with_bands:
                _draw_band(axes, curve.points, str(style["color"]), dots, f"{gids[curve.index]}-band")
                _draw_runs(axes, curve, style, gids[curve.index], dashes)
            ends.append(LineEnd(curve.points[-1].x, curve.points[-1].value, names[curve.index], style))
        # after the curves, beside whose range they stand
        first, last = axes.get_xlim() if lines else (0.0, 0.0)
        for rank, curve in enumerate(marks):
            at = None if placed else _find_aside(axes, first, last, (rank + 1) / (len(marks) + 1))
            style, (point,) = styles[curve.arm.name], curve.points
            _draw_mark(axes, curve, at, style, gids[curve.index], with_bands=with_bands)
            ends.append(LineEnd(point.x if at is None else math.inf, point.value, names[curve.index], style))
        levels = [curve.points[-1].value for curve in baselines]
        for curve, level in zip(baselines, levels, strict=True):
            axes.axhline(level, **styles[curve.arm.name], zorder=1, gid=gids[curve.index])
        for level_name in level_names:
            ends.append(LineEnd(math.inf, median_low(levels), level_name, styles[baselines[0].arm.name]))
        if rate:
            # from and to the nearest tenths: lines are read by their distances, not from zero
            low, high = axes.dataLim.intervaly
            axes.set_ylim(max(math.floor(low * 10) / 10, 0) - 0.01, min(math.ceil(high * 10) / 10, 1) + 0.01)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            percent_axis(axes)
        axes.set_ylabel(labels[1])
        drawn = [curve for curve in curves if not curve.arm.is_baseline] or curves
        axes.set_xlabel(labels[0])
        costs = [point.x for curve in drawn for point in (*curve.points, *(p for seed in curve.seeds for p in seed))]
        _format_x_axis(axes, costs, [curve.points[-1].x for curve in lines or drawn], against)
        if marks and not placed:
            _end_axis(axes, first, last)
        right = axes.get_xlim()[1]
        label_line_ends(axes, [end._replace(x=min(end.x, right)) for end in ends], height)
        return replace(make_drawing(figure, name, labels[2]), points=_list_curve_points(name, curves))


def _list_curve_points(name: str, curves: Sequence[Curve]) -> list[tuple[Any, ...]]:
    """Return the points of a figure's curves as `list_points` does; a mean over seeds has no run."""
    rows: list[tuple[Any, ...]] = []
    for curve in curves:
        runs = [run.name for run in curve.arm.runs]
        lines = (
            zip(["", *runs], [curve.points, *curve.seeds], strict=True) if curve.seeds else [(runs[0], curve.points)]
        )
        for run, points in lines:
            rows += list_points(name, curve.arm, points, run=run)
    return rows


def list_points(
    name: str, arm: Arm, points: Iterable[Point], *, run: str = "", stratum: str = ""
) -> list[tuple[Any, ...]]:
    """Return points of an arm in a figure by `POINT_COLUMNS`. run: empty for a mean. stratum: empty for all."""
    return [(name, arm.name, run, stratum, p.step, p.x, p.value, *(p.ci95 or (None, None))) for p in points]


def draw_bars(panel: Panel, score: Score, styles: Mapping[str, Style], name: str) -> Drawing | None:
    """Draw each arm's final score as a bar with its 95 % interval; None without figures.

    Its runs are small circles, the first seed's on top, the paper's figure is a hollow diamond, a random baseline is a
    dashed outline.
    """
    drawn = [(arm, row) for arm in panel.arms if (row := make_row(arm)).get_metric(score.name).n]
    if not drawn:
        return None
    names = [fit_name(printable(arm.label), _WIDTH, _MAX_NAME_LENGTH, beside=_VALUE_LENGTH) for arm, _ in drawn]
    higher = _NAME_LINE * max(name.count("\n") for name in names)
    share = _BAR / (_BAR + higher)  # of an arm's room, which is a unit, as if its name had one line
    with open_figure(_WIDTH, 0.5 + (_BAR + higher) * len(drawn)) as figure:
        axes = figure.subplots()
        for y, ((arm, row), shown) in enumerate(zip(drawn, names, strict=True)):
            _draw_bar(axes, y, arm, row, score, styles[arm.name], shown, share)
        axes.set_yticks([])
        axes.set_ylim(len(drawn) - 1 + 0.7 * share, -0.7 * share - higher / (_BAR + higher))
        if score.rate:
            axes.set_xlim(0, 1.02)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        else:
            axes.set_xlabel(label(score))
            if all(row.get_metric(score.name).value == 0 for _, row in drawn):  # no bar has a length: show the scale
                axes.set_xlim(0, score.high or 1)
        axes.grid(visible=True, axis="x")
        return make_drawing(figure, name, f"Final {name_score(score)} on {printable(panel.task)}")


def _draw_bar(axes: "Axes", y: float, arm: Arm, row: Row, score: Score, style: Style, name: str, share: float) -> None:
    """Draw a bar below its name and its figure: a name beside it would take half of a narrow figure.

    share: of its unit of the vertical axis that it takes with a name of one line.
    """
    metric = row.get_metric(score.name)
    look = {"color": style["color"], "alpha": 0.85, "linewidth": 0}
    if arm.is_baseline:
        look = {"facecolor": "none", "edgecolor": style["color"], "linestyle": "--", "linewidth": 1.2}
    axes.barh(y, or_nan(metric.value), height=0.36 * share, **look)
    if (interval := row.get_interval(score.name)) is not None:
        for colour, width in ((CARD, 4.0), (INK, 1.6)):  # a rim, to be seen on any bar
            axes.hlines(y, *interval, color=colour, linewidth=width)
    if len(arm.runs) > 1:
        finals = [or_nan(run.get_metric(score.name).value) for run in arm.runs]
        circle: Any = {"color": INK, "markersize": 3.2, "markerfacecolor": CARD, "markeredgewidth": 0.8}
        apart = 0.2 * share / (len(finals) - 1)  # equal ones would cover each other
        heights = [y - 0.1 * share + apart * rank for rank in range(len(finals))]
        axes.plot(finals, heights, "o", clip_on=False, **circle)
    if (reported := row.get_reported(score.name)) is not None:
        axes.plot(reported, y, marker="D", markersize=6.5, color=INK, markerfacecolor=CARD, clip_on=False)
    across = axes.get_yaxis_transform()
    first = y - 0.38 * share
    middle = first - 0.5 * _NAME_LINE * name.count("\n") * share / _BAR
    axes.text(0, middle, name, transform=across, va="center", linespacing=1.0)
    axes.text(1, first, value(score, metric.value), transform=across, va="center", ha="right")


def _count_covering(curves: Sequence[Curve]) -> list[int]:
    """Return for each curve the number of later ones that run over a part of it."""
    parts = [set(pairwise((round(point.x, 9), round(point.value, 9)) for point in curve.points)) for curve in curves]
    return [sum(not own.isdisjoint(other) for other in parts[rank + 1 :]) for rank, own in enumerate(parts)]


def _share_length(length: float, rank: int, curves: int) -> Any:
    """Return dashes that leave room for those of the other curves, so that lines at one place show all colours."""
    shares = min(curves, _MAX_SHARES)
    return "solid" if shares < 2 else (length * (rank % shares), (length, length * (shares - 1)))


def _draw_curve(axes: "Axes", curve: Curve, style: Style, gid: str, covering: int) -> None:
    """Draw a curve, wider by the later ones that cover it."""
    points = curve.points
    xs = [point.x for point in points]
    wide = {"linewidth": style["linewidth"] + 2 * covering, "markersize": style["markersize"] + 3 * covering}
    # a mark at every point would hide the line
    marked = max(1, len(points) // _MAX_MARKS)
    axes.plot(xs, [point.value for point in points], markevery=marked, **{**style, **wide}, gid=gid)


def _draw_runs(axes: "Axes", curve: Curve, style: Style, gid: str, dashes: Any) -> None:
    """Draw a curve's single runs as thin lines."""
    for rank, seed in enumerate(curve.seeds):
        thin = {"color": style["color"], "linestyle": dashes, "alpha": 0.55, "linewidth": 0.8, "markersize": 3}
        thin["marker"] = "" if len(seed) > 1 else "."
        axes.plot([point.x for point in seed], [point.value for point in seed], **thin, gid=f"{gid}-seed-{rank}")


def _draw_band(axes: "Axes", points: Sequence[Point], colour: str, dots: Any, gid: str) -> None:
    """Fill intervals between neighbours that have one; one without such a neighbour is a bar. dots: of the edges."""
    xs = [point.x for point in points]
    lows, highs = zip(*(point.ci95 or (math.nan, math.nan) for point in points), strict=True)
    if not any(low < high for low, high in zip(lows, highs, strict=True)):
        return
    axes.fill_between(xs, lows, highs, color=colour, alpha=0.06, linewidth=0, gid=gid)
    for rank, ends in enumerate((lows, highs)):
        axes.plot(xs, ends, color=colour, linestyle=dots, linewidth=0.8, alpha=0.7, gid=f"{gid}-end-{rank}")
    for before, point, after in zip((None, *points), points, (*points[1:], None), strict=False):
        if point.ci95 and not (before and before.ci95) and not (after and after.ci95):
            draw_interval(axes, point.x, point.ci95, colour)


def _draw_mark(axes: "Axes", curve: Curve, at: float | None, style: Style, gid: str, *, with_bands: bool) -> None:
    """Draw a curve of one point: with its cost, or right of the axis, on a dotted line at its level."""
    (point,) = curve.points
    if at is not None:
        axes.axhline(point.value, color=style["color"], linestyle=":", linewidth=1.3)
    place = point.x if at is None else at
    if point.ci95 is not None and with_bands:
        axes.vlines(place, *point.ci95, color=style["color"], alpha=0.6, linewidth=1.6)
    for rank, seed in enumerate(curve.seeds if with_bands else ()):
        places = [run.x if at is None else at for run in seed]
        small = {**style, "alpha": 0.45, "linewidth": 0.8, "markersize": 3}
        axes.plot(places, [run.value for run in seed], **small, gid=f"{gid}-seed-{rank}")
    axes.plot([place], [point.value], **style, gid=gid)


def _find_aside(axes: "Axes", first: float, last: float, share: float) -> float:
    """Return the place beyond the axis from first to last that has this share of the room for marks before it."""
    if last == first:
        return last + share
    scale = axes.xaxis.get_transform()
    start, end = scale.transform([first, last])
    return float(scale.inverted().transform([end + share * _ASIDE * (end - start)])[0])


def _end_axis(axes: "Axes", first: float, last: float) -> None:
    """End a horizontal axis where its curves end, before the marks that stand aside; without curves it has no ticks."""
    ticks: list[float] = []
    if last > first:
        axes.set_xlim(first, last)
        ticks = [tick for tick in axes.get_xticks() if first <= tick <= last]
    axes.set_xticks(ticks)
    axes.set_xlim(first, _find_aside(axes, first, last, 1.0))
    axes.axvline(last, color=GREY, linewidth=0.6)


def _format_x_axis(axes: "Axes", values: Sequence[float], totals: Sequence[float], against: AxisName) -> None:
    """Choose scale and ticks. values: of all points. totals: of each arm with a curve, where it ended."""
    from matplotlib.ticker import FormatStrFormatter, SymmetricalLogLocator

    if against == "step" and axes.get_xscale() == "symlog":
        decades = len(str(int(max(values))))
        subs = (1, 3) if decades < 5 else (1,)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=subs))
        return axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
    if against == "step":
        return integer_axis(axes)
    return format_cost_axis(axes, values, totals, in_dollars=against == "price")


def format_cost_axis(axes: "Axes", values: Sequence[float], totals: Sequence[float], *, in_dollars: bool) -> None:
    """Choose scale and ticks of an axis of costs. values: of all points. totals: of each arm, where it ended."""
    if not scale_by_magnitude(axes, values, totals):
        axes.set_xlim(left=0, right=max(values) * 1.05 or 1)
    cost_axis(axes, in_dollars=in_dollars)


def scale_by_magnitude(axes: "Axes", values: Sequence[float], totals: Sequence[float]) -> bool:
    """Make the horizontal axis logarithmic where totals differ so much; return whether it is.

    The small ones would share one pixel on a linear axis.
    """
    from matplotlib.ticker import NullFormatter

    if min(values) <= 0 or max(totals) < _LOG_SPAN * min(totals):
        return False
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return True

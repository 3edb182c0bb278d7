"""A run's figures as inline SVG. Colours and fonts are the page's, so that they follow its light or dark scheme."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from evorun.reports.judge import Bin
from evorun.reports.text import printable
from evorun.runs.results import Proportion
from evorun.runs.schema import MetricPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Matplotlib draws with these stand-ins; in the SVG they become custom properties of the page's style sheet.
_INK, _GRID, _SERIES = "#010101", "#020202", "#030303"
_PROPERTIES = {_INK: "var(--muted)", _GRID: "var(--grid)", _SERIES: "var(--series)"}

_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a stratum's name may hold dollar signs
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "ytick.major.size": 0,
    "font.size": 9.5,
    "figure.facecolor": "none",
    "lines.linewidth": 2,
    "lines.markersize": 4.5,
}

XAxis = Literal["step", "calls", "tokens"]
_X_LABELS = {"step": "generation", "calls": "calls per problem", "tokens": "tokens per problem"}
MAX_PANELS = 12
"""Strata that get a panel of their own; all of them are in the table."""


def accuracy_plot(points: Sequence[MetricPoint], x: XAxis) -> str | None:
    """Draw accuracy with its 95 % band against generations, calls or tokens; None without points."""
    drawn = [p for p in points if getattr(p, x) is not None]
    if not drawn:
        return None
    with _figure(5.2, 3.1) as figure:
        axes = figure.subplots()
        _accuracy_axes(axes, drawn, x)
        axes.set_ylabel("accuracy")
        return _svg(figure, f"accuracy-{x}", f"Accuracy against {_X_LABELS[x]}")


def strata_plot(series: Mapping[str, Sequence[MetricPoint]]) -> str | None:
    """Draw accuracy by generation, one panel a stratum; None without points."""
    panels = [(name, points) for name, points in series.items() if points][:MAX_PANELS]
    if not panels:
        return None
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with _figure(10.4, 2.7 * rows) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, (name, points) in zip(grid.flat, panels, strict=False):
            _accuracy_axes(axes, points, "step")
            axes.set_title(printable(name)[:40])
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy")
        return _svg(figure, "accuracy-strata", "Accuracy by generation in each stratum")


def decisive_plot(by_step: dict[int, Proportion]) -> str | None:
    """Draw the share of decisive duels by generation, with 95 % intervals; None without duels."""
    steps = sorted(step for step, share in by_step.items() if share.n)
    if not steps:
        return None
    with _figure(5.2, 2.8) as figure:
        axes = figure.subplots()
        _points_with_bars(axes, steps, [by_step[step] for step in steps])
        _unit_axis(axes)
        _integer_axis(axes)
        axes.set_xlabel("generation")
        axes.set_ylabel("decisive share of duels")
        return _svg(figure, "decisive", "Decisive share of duels by generation")


def calibration_plot(bins: Sequence[Bin]) -> str | None:
    """Draw the share of right candidates by posterior mean, with 95 % intervals; None with fewer than two groups."""
    if len(bins) < 2:
        return None
    with _figure(5.2, 2.8) as figure:
        axes = figure.subplots()
        _points_with_bars(axes, [(b.low + b.high) / 2 for b in bins], [b.correct for b in bins])
        _unit_axis(axes)
        axes.set_xlabel("posterior mean (middle of the group)")
        axes.set_ylabel("right candidates")
        return _svg(figure, "calibration", "Share of right candidates by posterior mean")


def _accuracy_axes(axes: "Axes", points: Sequence[MetricPoint], x: XAxis) -> None:
    from matplotlib.ticker import EngFormatter

    xs = [getattr(p, x) for p in points]
    axes.plot(xs, [_number(p.value) for p in points], color=_SERIES, marker="o")
    banded = [(at, *p.ci95) for at, p in zip(xs, points, strict=True) if p.ci95 is not None]
    if len(banded) == len(points) > 1:
        lows, highs = [low for _, low, _ in banded], [high for _, _, high in banded]
        axes.fill_between(xs, lows, highs, color=_SERIES, alpha=0.18, linewidth=0)
    else:
        for at, low, high in banded:
            axes.vlines(at, low, high, color=_SERIES, alpha=0.5)
    _unit_axis(axes)
    if x == "step":
        _integer_axis(axes)
    else:
        axes.set_xlim(left=0, right=max(xs) * 1.05 or 1)
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel(_X_LABELS[x])


def _points_with_bars(axes: "Axes", xs: Sequence[float], shares: Sequence[Proportion]) -> None:
    for x, share in zip(xs, shares, strict=True):
        if share.ci95 is not None:
            axes.vlines(x, *share.ci95, color=_SERIES, alpha=0.45, linewidth=2)
    axes.plot(xs, [_number(share.value) for share in shares], color=_SERIES, marker="o")


def _number(value: float | None) -> float:
    """A missing value leaves a gap in a line."""
    return float("nan") if value is None else value


def _unit_axis(axes: "Axes") -> None:
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])


def _integer_axis(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


@contextmanager
def _figure(width: float, height: float) -> Iterator["Figure"]:
    """Yield a figure of the given size in inches that pyplot does not know of."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def _svg(figure: "Figure", name: str, label: str) -> str:
    """Return an SVG element with a text alternative, the same for the same data."""
    import matplotlib

    buffer = io.StringIO()
    # A salt of its own for each figure keeps ids apart when several share a page.
    with matplotlib.rc_context({"svg.hashsalt": f"evorun-{name}"}), warnings.catch_warnings():
        # The browser sets the text, in its own fonts; Matplotlib's font only measures it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r'^<svg\b[^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{label}">', svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL).replace("xlink:href", "href")
    for colour, custom_property in _PROPERTIES.items():
        svg = svg.replace(colour, custom_property)
    return svg

"""The figure of a grid of programs (MAP-Elites): the best fitness in each cell of length and difference."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evorun.reports.drawing import (
    CARD,
    INK,
    SERIES,
    Drawing,
    count_rows,
    legend_above,
    make_drawing,
    make_panels,
    open_figure,
    wrap_name,
)
from evorun.runs.aggregates import Placed
from evorun.runs.schema import StepRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PROBLEMS = 3
"""Problems that are drawn at most, the first ones."""
_FAINTEST = 0.12
"""Opacity of the lowest fitness."""


def draw_grid(placed: Mapping[str, Sequence[Placed]], steps: Sequence[StepRecord]) -> Drawing | None:
    """Draw a grid for each problem, of all islands together; None for a run without grids.

    Each axis spans all programs that were placed, as the method's own at the end of the run.
    """
    bins = next((int(step.extra["grid_bins"]) for step in steps if "grid_bins" in step.extra), 0)
    if not placed or not bins:
        return None
    shown = list(placed.items())[:MAX_PROBLEMS]
    with open_figure(10.4, 3.1 * count_rows(len(shown))) as figure:
        for axes, (problem, programs) in zip(make_panels(figure, len(shown)), shown, strict=True):
            _draw_cells(axes, programs, bins)
            legend_above(axes, len(shown))
            if len(placed) > 1:
                axes.set_xlabel(f"length, characters\n{wrap_name(problem)}")
        return make_drawing(figure, "island_grid", "Best fitness by length and difference of programs")


def _draw_cells(axes: "Axes", programs: Sequence[Placed], bins: int) -> None:
    """Draw the occupied cells, the fitter the darker, and a mark in those whose program an island holds."""
    from matplotlib.patches import Rectangle

    lows, widths = [], []
    for values in ([program.length for program in programs], [program.difference for program in programs]):
        lows.append(min(values))
        widths.append((max(values) - min(values)) / bins or 1.0)
    best: dict[tuple[int, int], float] = {}
    held: set[tuple[int, int]] = set()
    for program in programs:
        x, y = (
            min(bins - 1, int((value - low) / width))
            for value, low, width in zip((program.length, program.difference), lows, widths, strict=True)
        )
        best[x, y] = max(program.fitness, best.get((x, y), program.fitness))
        if program.held:
            held.add((x, y))
    low, high = min(best.values()), max(best.values())

    def shade(fitness: float) -> float:
        return _FAINTEST + (1 - _FAINTEST) * ((fitness - low) / (high - low) if high > low else 1.0)

    for (x, y), fitness in sorted(best.items()):
        corner = lows[0] + x * widths[0], lows[1] + y * widths[1]
        axes.add_patch(Rectangle(corner, *widths, facecolor=SERIES, alpha=shade(fitness), linewidth=0))
    for fitness in (low, high) if high > low else (high,):
        axes.scatter([], [], marker="s", s=50, color=SERIES, alpha=shade(fitness), label=f"fitness {fitness:.4g}")
    marks = [[lows[axis] + (cell[axis] + 0.5) * widths[axis] for cell in sorted(held)] for axis in (0, 1)]
    axes.plot(*marks, "o", markersize=4, markerfacecolor=CARD, markeredgecolor=INK, label="held at the end")
    for place, limit in ((0, axes.set_xlim), (1, axes.set_ylim)):
        limit(lows[place], lows[place] + bins * widths[place])
    axes.grid(False)
    axes.set_xlabel("length, characters")
    axes.set_ylabel("difference from the first programs")

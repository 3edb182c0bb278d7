"""The figures of islands: lines per island and model, cells of a grid, and nothing for other runs."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from evorun.reports.drawing import Drawing
from evorun.reports.island_grid import draw_grid
from evorun.reports.islands import draw_islands
from evorun.runs.aggregates import Placed
from evorun.runs.schema import StepRecord


def step(problem: str, number: int, **figures: float) -> StepRecord:
    return StepRecord(problem, "s", number, None, None, None, 1, 1, {}, figures)


def lines(drawn: Drawing | None) -> list[dict[str, list[float]]]:
    """Return the named lines of each panel; lines of migrations have no name."""
    assert drawn is not None
    return [
        {
            str(line.get_label()): [float(value) for value in line.get_ydata()]
            for line in axes.get_lines()
            if not str(line.get_label()).startswith("_")
        }
        for axes in drawn.figure.axes
    ]


def test_each_island_and_model_has_a_line_over_all_problems() -> None:
    steps = [
        step(name, number, island_0_best=best + number, island_0_programs=1.0, island_1_best=5.0, island_1_programs=2.0)
        for name, best in (("p", 10.0), ("q", 20.0))
        for number in range(3)
    ]
    assert lines(draw_islands(steps, {})) == [
        {"island 0": [15, 16, 17], "island 1": [5, 5, 5]},
        {"island 0": [1, 1, 1], "island 1": [2, 2, 2]},
    ]
    steps.append(step("p", 3, island_0_best=20.0, migrants=2.0, model_0_children=3.0, model_1_children=5.0))
    found = lines(draw_islands(steps, {"generate.0": "small"}))
    assert found[0]["island 0"] == [15, 16, 17, 20]
    assert found[2] == {"small": [3], "model 1": [5]}
    assert draw_islands([step("p", 0, texts=3.0)], {}) is None


def test_a_cell_of_the_grid_has_the_best_fitness_of_its_programs() -> None:
    rng = np.random.default_rng(0)
    programs = [
        Placed(*values, fitness, held=place % 4 == 0)
        for place, (*values, fitness) in enumerate((rng.random((40, 3)) * [300, 20, 90]).tolist())
    ]
    drawn = draw_grid({"p": programs}, [step("p", 0, grid_bins=5.0)])
    assert drawn is not None
    (axes,) = drawn.figure.axes
    # The oracle is NumPy's histogram, whose edges span the values as the grid's do.
    lengths, differences = ([getattr(program, name) for program in programs] for name in ("length", "difference"))
    edges = np.histogram2d(lengths, differences, bins=5)[1:]
    cells: dict[tuple[int, int], list[Placed]] = {}
    for program in programs:
        values = (program.length, program.difference)
        x, y = (min(4, int(np.searchsorted(e, v, "right")) - 1) for v, e in zip(values, edges, strict=True))
        cells.setdefault((x, y), []).append(program)
    best = {cell: max(program.fitness for program in found) for cell, found in cells.items()}
    low, high = min(best.values()), max(best.values())
    rectangles = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(rectangles) == len(best)
    for (x, y), rectangle in zip(sorted(best), rectangles, strict=True):
        assert rectangle.get_xy() == pytest.approx((edges[0][x], edges[1][y]))
        assert rectangle.get_alpha() == pytest.approx(0.12 + 0.88 * (best[x, y] - low) / (high - low))
    (marks,) = axes.get_lines()
    assert len(marks.get_xdata()) == sum(any(program.held for program in found) for found in cells.values())
    assert draw_grid({"p": programs}, [step("p", 0)]) is None
    assert draw_grid({}, [step("p", 0, grid_bins=5.0)]) is None

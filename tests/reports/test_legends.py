"""Names in figures: none lies over a line, and none is cut."""

from collections.abc import Sequence

import pytest

from evorun.reports.drawing import legend_above, open_figure
from evorun.reports.plots import draw_training
from evorun.runs.schema import MetricPoint

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.mark.parametrize("names", [["one"], ["a name of thirty characters, so"] * 7, [f"{i}" for i in range(9)]])
def test_a_legend_stands_above_the_lines_within_its_figure(names: Sequence[str]) -> None:
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            axes.plot([0, 1], [number, 9], label=name)
        legend_above(axes)
        figure.draw_without_rendering()
        legend = axes.get_legend()
        assert legend is not None
        box, lines = legend.get_window_extent(), axes.get_window_extent()
        assert box.y0 >= lines.y1 - 1
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert lines.height > 2 * figure.dpi  # what the names take is added


def test_no_title_of_a_training_panel_is_cut() -> None:
    def rises(name: str) -> list[MetricPoint]:
        return [MetricPoint(step, name, step / 4, None, 1, 0.0, 0.0) for step in range(4)]

    names = ("phenotypic_diversity", "genotypic_diversity", "clipped_gradients")
    drawing = draw_training({name: rises(name) for name in names})
    assert drawing is not None
    texts = [" ".join(axes.get_title(loc="left").split()) for axes in drawing.figure.axes]
    assert texts == [
        "diversity of scores (mean difference of two prompts on a problem)",
        "diversity of principles (mean Jaccard distance of two prompts)",
        "gradients clipped (share of optimiser steps)",
    ]

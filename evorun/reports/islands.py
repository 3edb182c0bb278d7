"""The figure of islands of programs: what each island found and holds, who migrated, and which models were asked."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from evorun.reports.drawing import (
    GREY,
    RUNS,
    Drawing,
    count_rows,
    integer_axis,
    legend_above,
    make_drawing,
    make_panels,
    open_figure,
)
from evorun.runs.roles import GENERATORS
from evorun.runs.schema import StepRecord

Lines = Mapping[int, Mapping[int, float]]
"""Values by step, by the number of an island or model."""
_NUMBERED = re.compile(r"(island|model)_(\d+)_(best|programs|children)")
SHOWN = re.compile(rf"{_NUMBERED.pattern}|migrants|grid_bins")
"""Figures of steps that this figure, and that of the grid, show."""
MAX_LINES = len(RUNS)
"""Islands, or models, that are drawn at most: each has a colour of its own."""


def draw_islands(steps: Sequence[StepRecord], answered_by: Mapping[str, str]) -> Drawing | None:
    """Draw best fitness and size by island, and children by model, by generation; None for a run without islands.

    Values are means over the problems that reached a generation. Vertical lines are migrations. answered_by: names of
    models by call role.
    """
    values: dict[str, dict[int, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    migrations = set()
    for record in steps:
        for name, value in record.extra.items():
            if (found := _NUMBERED.fullmatch(name)) is not None:
                values[f"{found[1]}_{found[3]}"][int(found[2])][record.step].append(value)
        if record.extra.get("migrants"):
            migrations.add(record.step)
    if not values["island_best"]:
        return None
    panels = {
        "best fitness by island": ("island_best", "island {}"),
        "programs by island": ("island_programs", "island {}"),
    }
    if values["model_children"]:
        panels["children by model"] = ("model_children", "model {}")
    with open_figure(10.4, 3.1 * count_rows(len(panels))) as figure:
        for axes, (title, (series, pattern)) in zip(make_panels(figure, len(panels)), panels.items(), strict=True):
            for step in sorted(migrations):
                axes.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
            for number in sorted(values[series])[:MAX_LINES]:
                means = {step: fmean(found) for step, found in sorted(values[series][number].items())}
                label = pattern.format(number)
                if series == "model_children":
                    label = answered_by.get(f"{GENERATORS}{number}", label)
                axes.plot(list(means), list(means.values()), color=RUNS[number], label=label, marker="o", markersize=3)
            axes.set_xlabel("generation")
            axes.set_ylabel(title)
            integer_axis(axes)
            legend_above(axes, len(panels))
        return make_drawing(figure, "islands", "Islands by generation")

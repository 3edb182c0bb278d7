"""The figure of islands: a line per island and model, means over problems, and nothing for other runs."""

from evorun.reports.drawing import Drawing
from evorun.reports.islands import draw_islands
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

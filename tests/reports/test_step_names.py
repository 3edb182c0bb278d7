"""The word for steps: one in the progress, the figures and the notes of a run."""

import pytest

from evorun.reports.axes import choose_axes
from evorun.runs.formats import name_step


@pytest.mark.parametrize(
    ("method", "trained", "expected"),
    [
        ({"generations": 3}, False, "generation"),
        ({"generations": 3, "steps": 2}, False, "generation"),
        ({"steps": 3}, False, "step"),
        ({"rounds": 3}, False, "step"),
        ({"waves": 3}, False, "step"),
        ({"steps": 3}, True, "training step"),
        (None, False, "generation"),
    ],
)
def test_steps_are_named_by_their_method(method: object, trained: bool, expected: str) -> None:
    assert name_step({"method": method}, trained) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"generation"}, "generation"),
        ({"step"}, "step"),
        ({"generation", "step"}, "step"),
        ({"generation", "training step"}, "training step"),
        ({"generation", "step", "training step"}, "training step"),
    ],
)
def test_runs_that_share_a_figure_share_a_word(names: set[str], expected: str) -> None:
    axes = choose_axes(names, [])
    assert axes["step"].label == expected
    assert axes["calls"].whole_run == ("training step" in names)

"""The horizontal axes of curves: where a point stands on each, and what that is called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evorun.runs.schema import MetricPoint

XAxis = Literal["step", "calls", "tokens"]


@dataclass(frozen=True)
class Axis:
    """A horizontal axis: values and label from one place, so that a label never names another unit than is drawn."""

    name: XAxis
    label: str
    of_run: bool = False
    """True where costs are those of the whole run, all problems together; records have them per problem."""

    def place(self, point: MetricPoint, problems: int) -> float:
        """Return where a point of a score stands. problems: of its run."""
        value: float = getattr(point, self.name)
        return value * problems if self.of_run else value


Axes = Mapping[XAxis, Axis]
"""All that a curve is drawn along."""

OF_PROBLEMS: Axes = {
    "step": Axis("step", "generation"),
    "calls": Axis("calls", "calls per problem"),
    "tokens": Axis("tokens", "tokens per problem"),
}
OF_TRAINING: Axes = {
    "step": Axis("step", "training step"),
    "calls": Axis("calls", "calls of the run", of_run=True),
    "tokens": Axis("tokens", "tokens of the run", of_run=True),
}
"""The same for a run that trains: what it samples to learn from belongs to none of the problems that it reports on."""
OF_BOTH: Axes = {**OF_TRAINING, "step": Axis("step", "generation or training step")}
"""For runs of both kinds in one figure: costs of whole runs are the unit that both have."""


def choose_axes(trained: set[bool]) -> Axes:
    """Return the axes that runs share. trained: whether they have trained weights, of each run."""
    return OF_BOTH if len(trained) > 1 else OF_TRAINING if True in trained else OF_PROBLEMS

"""The horizontal axes of curves, with the position of a point on each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from evorun.runs.schema import MetricPoint

AxisName = Literal["step", "calls", "tokens", "price", "sequential_tokens"]


@dataclass(frozen=True)
class Axis:
    """A horizontal axis: its values and its label, so that the label always names the unit that is drawn."""

    name: AxisName
    label: str
    whole_run: bool = False
    """True if costs are the whole run's; records have them per problem."""

    def locate(self, point: MetricPoint, problems: int) -> float:
        """Return the position of a score's point. problems: the number in its run."""
        value: float | None = getattr(point, self.name)
        if value is None:  # of a random baseline, whose level alone counts
            return 0.0
        return value * problems if self.whole_run else value


_TRAINED = "training step"

XAxes = Mapping[AxisName, Axis]
"""The axes against which a curve is drawn, by name."""

PER_PROBLEM_AXES: XAxes = {
    "step": Axis("step", "generation"),
    "calls": Axis("calls", "calls per problem"),
    "tokens": Axis("tokens", "tokens per problem"),
    "price": Axis("price", "price per problem in dollars"),
    "sequential_tokens": Axis("sequential_tokens", "sequential tokens per problem"),
}
TRAINING_AXES: XAxes = {
    "step": Axis("step", _TRAINED),
    "calls": Axis("calls", "calls of the run", whole_run=True),
    "tokens": Axis("tokens", "tokens of the run", whole_run=True),
    "price": Axis("price", "price of the run in dollars", whole_run=True),
    # not a sum over problems, which are answered side by side
    "sequential_tokens": Axis("sequential_tokens", "sequential tokens"),
}
"""For a run that trains: its rollouts belong to none of the problems that it reports on."""


def choose_axes(step_names: set[str], points: Iterable[MetricPoint]) -> XAxes:
    """Return the axes that runs share. step_names: the runs' words for their steps.

    points: of the runs; price and sequential tokens have an axis where all of these have them.
    """
    # runs of both kinds in one figure have costs of the whole run
    axes = TRAINING_AXES if _TRAINED in step_names else PER_PROBLEM_AXES
    # among runs that train, others have no steps but their final score
    if step_names and _TRAINED not in step_names:
        axes = {**axes, "step": Axis("step", next(iter(step_names)) if len(step_names) == 1 else "step")}
    lacking: set[AxisName] = {"price", "sequential_tokens"}
    known = list(points)
    lacking = {name for name in lacking if not known or any(getattr(point, name) is None for point in known)}
    return {name: axis for name, axis in axes.items() if name not in lacking}

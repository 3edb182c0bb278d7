"""Arms' rewards beside the score that they do not see, where something else than the task's own grade rewards."""

from collections.abc import Mapping, Sequence

from evorun.reports import text
from evorun.reports.axes import TRAINING_AXES
from evorun.reports.comparison.arms import Arm, Point, shared_mean_curve
from evorun.reports.comparison.comparison import Panel
from evorun.reports.comparison.plots import Style
from evorun.reports.drawing import Drawing, integer_axis, make_drawing, open_figure, wrap_name
from evorun.runs.printable import printable
from evorun.runs.scores import Score

MAX_ARMS = 6
"""Maximum arms of the figure (ours), the first ones: more would be too narrow to read."""


def draw_rewards_beside_scores(panel: Panel, styles: Mapping[str, Style], name: str) -> Drawing | None:
    """Draw each arm's reward by training step above its gold score; None without an arm that has both.

    The scores share an axis. The rewards of different arms are different measures, so each has an axis of its own.
    """
    lines = [(arm, *_read_lines(panel, arm)) for arm in panel.arms]
    drawn = [(arm, reward, score) for arm, reward, score in lines if reward and score][:MAX_ARMS]
    if not drawn:
        return None
    with open_figure(max(3.4 * len(drawn), 5.0), 4.6) as figure:
        rows = figure.subplots(2, len(drawn), sharex="col", squeeze=False)
        for column, (arm, *series) in enumerate(drawn):
            for axes, points, own in zip(rows[:, column], series, ({"marker": ""}, {}), strict=True):
                xs = [point.x for point in points]
                axes.plot(xs, [point.value for point in points], **{**styles[arm.name], **own})
            if column:
                rows[1, column].sharey(rows[1, 0])
            rows[0, column].set_title(wrap_name(arm.label))
            rows[1, column].set_xlabel(TRAINING_AXES["step"].label)
            integer_axis(rows[1, column])
        rows[0, 0].set_ylabel("training reward")
        rows[1, 0].set_ylabel(text.label(_get_gold(drawn[0][0]) or panel.primary))
        return make_drawing(
            figure, name, f"Training reward beside the score of test problems on {printable(panel.task)}"
        )


def _get_gold(arm: Arm) -> Score | None:
    hacking = arm.runs[0].outcome.hacking
    return None if hacking is None else hacking.gold


def _read_lines(panel: Panel, arm: Arm) -> tuple[Sequence[Point], Sequence[Point]]:
    """Return the means over an arm's seeds of its reward and of its gold score, by training step."""
    gold = _get_gold(arm)
    if gold is None:
        return (), ()
    rewards = [
        [
            Point(at.step, at.step, at.value, None)
            for at in run.training.get(run.outcome.hacking.reward, ())
            if at.value is not None
        ]
        for run in arm.runs
        if run.outcome.hacking is not None
    ]
    axis = TRAINING_AXES["step"]
    return shared_mean_curve([line for line in rewards if line], Score("reward"), axis), arm.curve(gold, axis)

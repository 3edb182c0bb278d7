"""The figures of a run with rubric rewards: rewards, gold score, monitors, and rubrics (MPO, figures 4 and 5)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.drawing import (
    GRID,
    INK,
    RUNS,
    SERIES,
    Drawing,
    count_rows,
    draw_interval,
    finish_drawing,
    integer_axis,
    legend_above,
    make_drawing,
    make_panels,
    open_figure,
    or_nan,
)
from evorun.reports.hacking import MONITOR, MONITORS, RAW, REWARD, Divergence
from evorun.reports.population import Length, average_shared
from evorun.runs.printable import printable
from evorun.runs.schema import MetricPoint, RubricScore
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = Mapping[str, Sequence[MetricPoint]]
"""Figures of training steps, by name."""

MAX_NAMED = 6
"""Maximum lines of a figure with a name and a colour; all further lines are grey."""

MAX_MARKS = 40
"""Maximum points of a line with a mark at each point."""

REWARDS = {RAW: "raw reward", REWARD: "normalised reward", "kl": "KL (nats per token)", "reward_spread": "spread"}
"""Figures of training steps that are drawn below one another for rubric rewards."""

NO_KL = "no KL divergence was measured, which simulated policies and method.kl=0 do not have"
"""The reason why the figure of rewards lacks a panel."""

SIGNS = {"zero_gradient": "zero gradient", "nearly_uniform": "nearly uniform", "reward_collapse": "reward collapse"}
"""Figures that mark steps at which training failed, with their names in a legend."""
_SIGN_MARKS = "xv*"


def draw_gold_score(
    rewards: Sequence[MetricPoint],
    gold: Sequence[MetricPoint],
    score: Score,
    refined: Sequence[int],
    divergence: Divergence | None,
    *,
    reward: str,
) -> Drawing | None:
    """Draw the gold score by evaluation beside the reward, and where they diverge; None without both.

    reward: its name.
    """
    known = [point for point in gold if point.value is not None]
    if not known or not rewards:
        return None
    shares = [or_nan(point.value) for point in rewards]
    together = score.low == 0 and score.high == 1 and not any(share < 0 or share > 1 for share in shares)
    with open_figure(10.4, 3.4 if together else 5) as figure:
        panels = [figure.subplots()] * 2 if together else list(figure.subplots(2, 1, sharex=True))
        panels[0].plot(*_split(rewards), color=RUNS[4], linewidth=1.4, label=reward)
        panels[1].plot(*_split(known), color=SERIES, marker="o", label=text.gold_prefix(score) + text.label(score))
        for point in known:
            draw_interval(panels[1], point.step, point.ci95, SERIES)
        for axes in dict.fromkeys(panels):
            _mark_refinements(axes, refined)
            if divergence is not None:
                first = divergence.first.last
                axes.axvspan(first, max(divergence.until, first + 0.5), color=RUNS[1], alpha=0.1)
            legend_above(axes)
            if together:
                axes.set_ylim(-0.02, 1.02)
        integer_axis(panels[1])
        panels[1].set_xlabel("training step")
        return make_drawing(figure, "gold", "Gold score beside the training reward")


def draw_rewards(series: Series, refined: Sequence[int]) -> Drawing | None:
    """Draw raw and normalised reward and the KL divergence, with lines at refinements and signs of collapse (figure 4).

    None without a reward.
    """
    drawn = [(label, points) for name, label in REWARDS.items() if (points := series.get(name))]
    if not drawn:
        return None
    with open_figure(10.4, 1.7 * len(drawn) + 0.7) as figure:
        grid = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (label, points) in zip(grid, drawn, strict=True):
            axes.plot(*_split(points), color=SERIES, linewidth=1.6)
            axes.set_ylabel(label)
            _mark_refinements(axes, refined)
        for mark, (name, label) in zip(_SIGN_MARKS, SIGNS.items(), strict=True):
            if seen := [point.step for point in series.get(name, ()) if point.value]:
                low = grid[0].get_ylim()[0]
                grid[0].plot(seen, [low] * len(seen), mark, color=RUNS[1], label=label, clip_on=False)
        legend_above(grid[0])
        integer_axis(grid[-1])
        grid[-1].set_xlabel("training step")
        figures = "Rewards and KL divergence" if series.get("kl") else "Rewards"
        return make_drawing(figure, "rewards-and-kl", f"{figures} by training step")


def draw_monitors(series: Series, refined: Sequence[int], above: Mapping[str, float]) -> Drawing | None:
    """Draw the monitors of hacking, one panel each, with their thresholds if they have any; None without monitors."""
    found = [
        (label, points, above.get(name)) for name, label in MONITORS.items() if (points := series.get(MONITOR + name))
    ]
    if not found:
        return None
    with open_figure(10.4, 2.4 * count_rows(len(found))) as figure:
        for axes, (label, points, threshold) in zip(make_panels(figure, len(found)), found, strict=True):
            # Not clipped: at zero, half of the line lies beyond the axes.
            steps, values = _split(points)
            axes.plot(steps, values, color=SERIES, linewidth=1.6, clip_on=False)
            axes.set_ylim(bottom=min(0.0, *values))
            if threshold is not None:
                axes.axhline(threshold, color=RUNS[1], linewidth=1, linestyle=(0, (2, 2)))
            _mark_refinements(axes, refined)
            axes.set_title(label)
            axes.set_xlabel("training step")
            integer_axis(axes)
        return make_drawing(figure, "monitors", "Monitors of reward hacking by training step")


def draw_unscored(shares: Mapping[str, Mapping[int, float]], refined: Sequence[int]) -> Drawing | None:
    """Draw the share of responses without a score by step, one line per reason; None if all have scores."""
    if not shares:
        return None
    largest = sorted(shares, key=lambda name: -sum(shares[name].values()))
    with open_figure(5.2, 3.1) as figure:
        axes = figure.subplots()
        for order, name in enumerate(largest):
            named = order < MAX_NAMED
            label = text.words(name)[:30] if named else None
            axes.plot(*zip(*shares[name].items(), strict=True), color=RUNS[order] if named else GRID, label=label)
        _mark_refinements(axes, refined)
        axes.set_ylim(bottom=0)
        labels = "training step", "share of responses"
        return finish_drawing(axes, "unscored", "Responses without a score by reason", labels)


def draw_lengths(lengths: Mapping[str, Sequence[Length]]) -> Drawing | None:
    """Draw the mean words per item of a rubric by refinement (figure 5a); None if nothing was refined.

    lengths: by line, one per key.
    """
    lines: dict[str, _Line] = {
        label: [(version.number, version.words, None, None) for version in versions]
        for label, versions in lengths.items()
        if len(versions) > 1
    }
    title = "Mean words of rubric items by refinement"
    return _draw_by_refinement(lines, "rubric-lengths", "words per item", title)


def draw_strictness(scores: Mapping[str, Sequence[tuple[int, RubricScore]]]) -> Drawing | None:
    """Draw each rubric's score of the same responses, by refinement (figure 5b); None without any.

    scores: by line, each with the number of refinements before its rubric.
    """
    found: dict[str, _Line] = {
        label: [
            (refinement, score.score, score.low, score.high) for refinement, score in points if score.score is not None
        ]
        for label, points in scores.items()
    }
    lines, title = {name: line for name, line in found.items() if line}, "Score of the same responses under each rubric"
    return _draw_by_refinement(lines, "rubric-strictness", "share of points given", title)


_Line = Sequence[tuple[int, float, float | None, float | None]]
"""Refinement, value, and the ends of its interval."""


def _draw_by_refinement(lines: Mapping[str, _Line], name: str, label: str, title: str) -> Drawing | None:
    if not lines:
        return None
    few = len(lines) <= len(RUNS)
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        for order, (line_name, line) in enumerate(lines.items()):
            colour = SERIES if len(lines) == 1 else RUNS[order % len(RUNS)] if few else INK
            axes.plot(
                [refinement for refinement, *_ in line],
                [value for _, value, *_ in line],
                color=colour,
                alpha=1 if few else 0.35,
                linewidth=1.6 if few else 0.8,
                marker="o" if few and len(line) <= MAX_MARKS else None,
                markersize=3.5,
                label=printable(line_name)[:34] if few and len(lines) > 1 else None,
            )
            for refinement, _, low, high in line if few else ():
                draw_interval(axes, refinement, (low, high), colour)
        if not few:
            _draw_mean_line(axes, lines)
        axes.set_ylim(bottom=0)
        return finish_drawing(axes, name, title, ("refinements", label))


def _draw_mean_line(axes: "Axes", lines: Mapping[str, _Line]) -> None:
    """Draw the mean over all lines, at the refinements that all have, when they are too many to tell apart."""
    means = average_shared([{refinement: value for refinement, value, *_ in line} for line in lines.values()])
    axes.plot(list(means), list(means.values()), color=SERIES, linewidth=2.2, label=f"mean of {len(lines)}")


def _mark_refinements(axes: "Axes", refined: Sequence[int]) -> None:
    """Draw a line at each refinement: between the step after which a rubric was replaced, and the next."""
    for step in refined:
        axes.axvline(step + 0.5, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)


def _split(points: Sequence[MetricPoint]) -> tuple[list[int], list[float]]:
    """Return the steps of points, and their values."""
    return [point.step for point in points], [or_nan(point.value) for point in points]

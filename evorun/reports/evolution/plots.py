"""The figures of what serves all problems: ratings, rewards and test scores by step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.drawing import (
    FLOOR,
    GRID,
    INK,
    RUNS,
    SERIES,
    Drawing,
    drawing_of,
    figure_of,
    integer_axis,
    legend_above,
    score_axis,
)
from evorun.reports.evolution.population import Population, mean
from evorun.reports.evolution.transplant import Transplant
from evorun.runs.candidates import CandidateId
from evorun.runs.printable import printable
from evorun.runs.schema import PrincipleEffect, PromptScore
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 6
"""Courses of ratings in a colour of their own; the others are grey."""


def colours_of(population: Population) -> dict[CandidateId, str]:
    """Return the colours of the candidates that figures name, in all the same: the best, the root, the next best."""
    rated = [index for index, one in enumerate(population.members) if one.mean is not None]
    ranked = sorted(rated, key=lambda index: -(population.members[index].mean or 0.0))
    first = [index for index in (population.best, 0) if index in rated]
    named = list(dict.fromkeys([*first, *ranked]))[:MOST_NAMED]
    colours = [SERIES, *RUNS[1:]] if population.best is not None else RUNS[1:]
    return {population.members[index].id: colour for index, colour in zip(named, colours, strict=False)}


def short(name: str) -> str:
    """Return an id as a figure has room for it."""
    return printable(name[:24])


def ratings_plot(population: Population, step: str) -> Drawing | None:
    """Draw the course of each rating, the best ones named, the best with its sd; None where no rating ever changes."""
    last = max((rating.step for course in population.courses.values() for rating in course), default=0)
    courses = {
        index: [(r.step, r.mean, r.sd or 0.0) for r in population.courses.get(one.id, ()) if r.mean is not None]
        for index, one in enumerate(population.members)
    }
    courses = {index: course for index, course in courses.items() if course}
    if not any(len(course) > 1 for course in courses.values()):
        return None
    colours = colours_of(population)
    with figure_of(5.2, 3.4) as figure:
        axes = figure.subplots()
        for index, course in courses.items():
            # a belief holds until it changes, while its candidate is kept
            held = [*course, (last, *course[-1][1:])] if population.members[index].survivor else course
            steps, means, sds = zip(*held, strict=True)
            colour = colours.get(population.members[index].id)
            if colour is None:
                axes.plot(steps, means, color=GRID, linewidth=1, zorder=1)
                continue
            label = short(population.members[index].id) + population.mark(index)
            axes.plot(steps, means, color=colour, linewidth=1.6, label=label, marker="o", markersize=3)
            if index == population.best:
                low, high = ([m + sign * sd for m, sd in zip(means, sds, strict=True)] for sign in (-1, 1))
                axes.fill_between(steps, low, high, color=SERIES, alpha=0.18, linewidth=0)
        integer_axis(axes)
        axes.set_xlabel(step)
        axes.set_ylabel("rating")
        legend_above(axes)
        return drawing_of(figure, "ratings", f"Ratings of {population.kinds} by {step}")


def rewards_plot(
    rewards: Mapping[int, Mapping[CandidateId | None, float]], population: Population, step: str
) -> Drawing | None:
    """Draw the mean reward of each candidate's rollouts by step, and that of all; None without rewards."""
    if not rewards:
        return None
    best = None if population.best is None else population.members[population.best].id
    with figure_of(5.2, 3.4) as figure:
        axes = figure.subplots()
        points = [(at, reward, who) for at, by_one in rewards.items() for who, reward in by_one.items()]
        for own, colour, label in ((False, FLOOR, "a prompt"), (True, SERIES, "the best prompt")):
            chosen = [(at, reward) for at, reward, who in points if (who == best) == own and who is not None]
            if chosen:
                axes.plot(*zip(*chosen, strict=True), "o", color=colour, markersize=4, alpha=0.75, label=label)
        steps = sorted(rewards)
        axes.plot(steps, [mean(list(rewards[at].values())) for at in steps], color=INK, label="mean of the step")
        integer_axis(axes)
        axes.set_xlabel(step)
        axes.set_ylabel("reward")
        legend_above(axes)
        return drawing_of(figure, "reward-by-prompt", f"Reward by {step} and prompt")


def scores_plot(population: Population, score: Score, step: str) -> Drawing | None:
    """Draw test scores against ratings, a colour for each step (figure 8); None without rated and tested ones."""
    points = [
        (rating, one)
        for one in population.scores
        if (rating := population.rating_at(one.candidate, one.step)) is not None
    ]
    if len(points) < 2:
        return None
    steps = sorted({one.step for _, one in points})
    with figure_of(5.2, 3.4) as figure:
        axes = figure.subplots()
        for order, at in enumerate(steps):
            # the latest steps have colours of their own: more could not be told apart
            age = len(steps) - 1 - order
            colour = SERIES if age == 0 else RUNS[1 + age % 6] if age < 6 else GRID
            own = [(rating, one) for rating, one in points if one.step == at]
            for rating, one in own:
                _bar(axes, rating, one, colour)
            label = f"{step} {at}" if age < 6 else None
            axes.plot([r for r, _ in own], [one.score for _, one in own], "o", color=colour, label=label)
        axes.set_xlabel(f"rating after the {step}")
        axes.set_ylabel(text.label(score))
        legend_above(axes)
        return drawing_of(figure, "rating-score", f"Test {text.words(score.name)} against rating")


def _bar(axes: "Axes", x: float, one: PromptScore, colour: str) -> None:
    if one.low is not None and one.high is not None:
        axes.vlines(x, one.low, one.high, color=colour, alpha=0.4, linewidth=1.5)


def transplant_plot(matrix: Transplant, score: Score, colours: Mapping[CandidateId, str]) -> Drawing:
    """Draw test scores by weights, a line a prompt: the lines part by what the prompts bring.

    Prompts that were tested with the weights of one step only are points without a name. colours: of those that other
    figures name.
    """
    rows = {who: [cell for step in matrix.steps if (cell := matrix.cells.get((who, step)))] for who in matrix.prompts}
    named = [who for who, cells in rows.items() if len(cells) > 1]
    free = [colour for colour in RUNS if colour not in colours.values()]
    others = [who for who in named if who not in colours]
    own = {**colours, **{who: free[index % len(free)] for index, who in enumerate(others)}}
    with figure_of(5.2, 3.4) as figure:
        axes = figure.subplots()
        for who, cells in rows.items():
            colour = own[who] if who in named else FLOOR
            for cell in cells:
                _bar(axes, cell.step, cell, colour)
            steps, scores = [cell.step for cell in cells], [cell.score for cell in cells]
            axes.plot(steps, scores, "o-", color=colour, label=matrix.names[who][:40] if who in named else None)
        integer_axis(axes)
        score_axis(axes, score)
        axes.set_xlabel("weights after step")
        axes.set_ylabel(text.label(score))
        legend_above(axes)
        return drawing_of(figure, "transplant", f"Test {text.words(score.name)} by weights and prompt")


def effects_plot(effects: Sequence[PrincipleEffect], score: Score) -> Drawing | None:
    """Draw the effect of each principle with its interval, numbered in the prompt's order; None without any."""
    if not effects:
        return None
    with figure_of(5.2, 1.2 + 0.26 * len(effects)) as figure:
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=0.8)
        for row, one in enumerate(effects):
            if one.low is not None and one.high is not None:
                axes.hlines(row, one.low, one.high, color=SERIES, alpha=0.45, linewidth=2)
            axes.plot([one.effect], [row], "o", color=SERIES)
        axes.set_yticks(range(len(effects)), [str(number + 1) for number in range(len(effects))])
        axes.set_ylim(len(effects) - 0.5, -0.5)
        axes.set_ylabel("principle")
        axes.set_xlabel(f"{text.words(score.name)} with it, less without it")
        return drawing_of(figure, "principles", "Effect of each principle")

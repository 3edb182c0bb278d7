"""The figures of the candidates that serve all problems: ratings, rewards and test scores by step."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from evorun.reports import text
from evorun.reports.drawing import (
    GREY,
    GRID,
    INK,
    RUNS,
    SERIES,
    Drawing,
    draw_interval,
    finish_drawing,
    open_figure,
    score_axis,
)
from evorun.reports.population import Population, Transplant
from evorun.runs.candidates import CandidateId
from evorun.runs.printable import printable
from evorun.runs.schema import PrincipleEffect
from evorun.runs.scores import Score

MAX_NAMED = 6
"""Maximum curves of ratings with a colour; all further curves are grey."""


def assign_colours(population: Population) -> dict[CandidateId, str]:
    """Return the colours of the candidates that figures name, equal in all figures: best, root, next best."""
    rated = [index for index, member in enumerate(population.members) if member.mean is not None]
    ranked = sorted(rated, key=lambda index: -(population.members[index].mean or 0.0))
    first = [index for index in (population.best, 0) if index in rated]
    named = list(dict.fromkeys([*first, *ranked]))[:MAX_NAMED]
    colours = [SERIES, *RUNS[1:]] if population.best is not None else RUNS[1:]
    return {population.members[index].id: colour for index, colour in zip(named, colours, strict=False)}


def short(name: str) -> str:
    """Return an id, shortened for a figure."""
    return printable(name[:24])


def draw_ratings(population: Population, step: str) -> Drawing | None:
    """Draw each rating by step: the best with names, the very best with its sd; None if no rating ever changes."""
    last = max((rating.step for course in population.courses.values() for rating in course), default=0)
    courses = {
        index: [(r.step, r.mean, r.sd or 0.0) for r in population.courses.get(member.id, ()) if r.mean is not None]
        for index, member in enumerate(population.members)
    }
    courses = {index: course for index, course in courses.items() if course}
    if not any(len(course) > 1 for course in courses.values()):
        return None
    colours = assign_colours(population)
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        for index, course in courses.items():
            # A rating holds until it changes, while its candidate is kept.
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
        return finish_drawing(axes, "ratings", f"Ratings of {population.kinds} by {step}", (step, "rating"))


def draw_rewards(
    rewards: Mapping[int, Mapping[CandidateId | None, float]], population: Population, step: str
) -> Drawing | None:
    """Draw the mean reward of each candidate's rollouts by step, and the mean of all; None without rewards."""
    if not rewards:
        return None
    best = None if population.best is None else population.members[population.best].id
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        points = [
            (at, reward, candidate)
            for at, by_candidate in rewards.items()
            for candidate, reward in by_candidate.items()
        ]
        for own, colour, label in ((False, GREY, "a prompt"), (True, SERIES, "the best prompt")):
            chosen = [
                (at, reward) for at, reward, candidate in points if (candidate == best) == own and candidate is not None
            ]
            if chosen:
                axes.plot(*zip(*chosen, strict=True), "o", color=colour, markersize=4, alpha=0.75, label=label)
        steps = sorted(rewards)
        axes.plot(steps, [fmean(list(rewards[at].values())) for at in steps], color=INK, label="mean of the step")
        return finish_drawing(axes, "reward-by-prompt", f"Reward by {step} and prompt", (step, "reward"))


def draw_scores(population: Population, score: Score, step: str) -> Drawing | None:
    """Draw test scores against ratings, one colour per step (figure 8); None without two candidates that have both."""
    points = [
        (rating, cell)
        for cell in population.scores
        if (rating := population.rating_at(cell.candidate, cell.step)) is not None
    ]
    if len(points) < 2:
        return None
    steps = sorted({cell.step for _, cell in points})
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        for order, at in enumerate(steps):
            # Only the latest steps have their own colours: more could not be told apart.
            age = len(steps) - 1 - order
            colour = SERIES if age == 0 else RUNS[1 + age % 6] if age < 6 else GRID
            own = [(rating, cell) for rating, cell in points if cell.step == at]
            for rating, cell in own:
                draw_interval(axes, rating, (cell.low, cell.high), colour)
            label = f"{step} {at}" if age < 6 else None
            axes.plot([r for r, _ in own], [cell.score for _, cell in own], "o", color=colour, label=label)
        title, labels = f"Test {text.name_score(score)} against rating", (f"rating after the {step}", text.label(score))
        return finish_drawing(axes, "rating-score", title, labels, integers=False)


def draw_transplant(matrix: Transplant, score: Score, colours: Mapping[CandidateId, str]) -> Drawing:
    """Draw test scores by weights, one line per prompt: the prompts' effects separate the lines.

    Prompts tested with the weights of a single step are points without a name. colours: of the prompts that other
    figures name.
    """
    rows = {
        prompt: [cell for step in matrix.steps if (cell := matrix.cells.get((prompt, step)))]
        for prompt in matrix.prompts
    }
    named = [prompt for prompt, cells in rows.items() if len(cells) > 1]
    free = [colour for colour in RUNS if colour not in colours.values()]
    others = [prompt for prompt in named if prompt not in colours]
    own = {**colours, **{prompt: free[index % len(free)] for index, prompt in enumerate(others)}}
    with open_figure(5.2, 3.4) as figure:
        axes = figure.subplots()
        for prompt, cells in rows.items():
            colour = own[prompt] if prompt in named else GREY
            for cell in cells:
                draw_interval(axes, cell.step, (cell.low, cell.high), colour)
            steps, scores = [cell.step for cell in cells], [cell.score for cell in cells]
            axes.plot(steps, scores, "o-", color=colour, label=matrix.names[prompt][:40] if prompt in named else None)
        score_axis(axes, score)
        title = f"Test {text.name_score(score)} by weights and prompt"
        return finish_drawing(axes, matrix.name, title, ("weights after step", text.label(score)))


def draw_effects(effects: Sequence[PrincipleEffect], score: Score) -> Drawing | None:
    """Draw the effect of each principle with its interval, numbered in the prompt's order; None without any."""
    if not effects:
        return None
    with open_figure(5.2, 1.2 + 0.26 * len(effects)) as figure:
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=0.8)
        for row, effect in enumerate(effects):
            if effect.low is not None and effect.high is not None:
                axes.hlines(row, effect.low, effect.high, color=SERIES, alpha=0.45, linewidth=2)
            axes.plot([effect.effect], [row], "o", color=SERIES)
        axes.set_yticks(range(len(effects)), [str(number + 1) for number in range(len(effects))])
        axes.set_ylim(len(effects) - 0.5, -0.5)
        labels = f"{text.name_score(score)} with it minus without it", "principle"
        return finish_drawing(axes, "principles", "Effect of each principle", labels, integers=False)

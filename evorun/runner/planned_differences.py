"""The smallest difference that planned runs could show, by recorded runs where there are any."""

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorun.runner.recorded import Recorded
from evorun.runner.settings import RunConfig
from evorun.runs.crossed import crossed_mean
from evorun.runs.formats import counted
from evorun.runs.scores import Score
from evorun.runs.statistics import Spread, estimate_spread, smallest_difference, worst_spread

BY_DEGREES = "; often several times too large where scores are by degrees"
UNPAIRED = "; runs of two methods usually give a smaller one, so plan again after one seed"
OF_EARLIER_RUNS = "is recorded below outputs"
SEEDS_AGREE = "; larger where seeds disagree on a problem"


class PlannedDifference(NamedTuple):
    """The smallest difference between two planned arms."""

    size: float | None
    """In the primary score; None where it is unknown, also since no recorded values differ."""
    note: str
    """Its assumptions."""
    pair: tuple[str, ...] = ()
    """The two methods whose recorded runs give it; empty where it is no pair's."""
    by_method: Mapping[str, float] = MappingProxyType({})
    """That to each other method with recorded runs."""


def plan_difference(
    config: RunConfig, problems: int, seeds: int, recorded: Recorded, methods: Collection[str]
) -> PlannedDifference:
    """Return the smallest difference of an arm to another on the same problems and seeds.

    methods: those of all planned arms. Recorded runs of two of them under the same settings give it; of an arm by
    itself, those of any other method. Of several pairs with as many recorded values, the smallest.
    """
    score = config.task.task_class.scores[0]
    model, simulated = config.engine.journal_name(config.model), config.engine.simulated
    others = {*methods} - {config.method.name}
    found = recorded.find_differences(
        config.method.name, others, config.task.name, model, score, config.raw, simulated=simulated
    )
    if found:
        most = max(paired.differences.size for paired in found)
        sizes = {paired.theirs: _size(paired.differences, problems, seeds) for paired in found}
        by_method = {name: size for name, size in sizes.items() if size}
        # a pair with fewer recorded values says less, so its figure is none of the arm's
        best = [paired for paired in found if paired.differences.size == most]
        paired = min(best, key=lambda paired: by_method.get(paired.theirs, math.inf))
        known_seeds, known_problems = paired.differences.shape
        earlier = f"earlier runs at these settings on {known_problems} problems x {counted(known_seeds, 'seed')}"
        if paired.theirs not in by_method:
            return PlannedDifference(None, f"since {earlier} all differ by the same amount")
        agree = SEEDS_AGREE if seeds > 1 and known_seeds == 1 else ""
        pair = tuple(sorted((paired.ours, paired.theirs)))
        return PlannedDifference(by_method[paired.theirs], f"from {earlier}{agree}", pair, by_method)
    spread, note = _find_spread(score, config, recorded)
    if spread is None:
        return PlannedDifference(None, note)
    note += UNPAIRED + (SEEDS_AGREE if seeds > 1 else "")
    return PlannedDifference(smallest_difference(spread, problems, seeds), note)


def _size(differences: NDArray[np.float64], problems: int, seeds: int) -> float | None:
    """Return the smallest difference by recorded ones [seeds, problems]; of as many as planned, the report's figure."""
    if differences.shape == (seeds, problems) and (mean := crossed_mean(differences)) is not None:
        return mean.smallest_difference()
    return smallest_difference(estimate_spread(differences), problems, seeds)


def _find_spread(score: Score, config: RunConfig, recorded: Recorded) -> tuple[Spread | None, str]:
    task = config.task.name
    earlier = recorded.score(task, simulated=config.engine.simulated)
    if earlier is not None:
        metric, about = earlier
        if score.rate and metric.value is not None:
            known = f"{100 * metric.value:.1f} %, of {about} on {metric.n} problems"
            if metric.value in (0.0, 1.0):
                return None, f"since the recorded score is {known}, and says nothing about how much runs differ"
            return worst_spread(mean=metric.value), f"by the spread at {known}"
        if metric.ci95 is not None:
            variance = ((metric.ci95[1] - metric.ci95[0]) / (2 * 1.96)) ** 2 * metric.n
            return Spread(problem=2 * variance), f"by the interval of {about} on {metric.n} problems"
    none = f"no run of {'simulated' if config.engine.simulated else 'real'} models on {task} {OF_EARLIER_RUNS}"
    if score.low is None or score.high is None:
        return None, f"{score.shown_name} has no bounds, and {none}"
    note = f"by the largest spread that {score.shown_name} can have, since {none}"
    return worst_spread(score.low, score.high), note + ("" if score.rate else BY_DEGREES)

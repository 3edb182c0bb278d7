"""Evidence for the ratings of system prompts: how well their order agrees with measured fitness."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from evorun.runs.candidates import SHARED, CandidateId, Kind
from evorun.runs.directory import RATINGS, ROLLOUTS
from evorun.runs.reading import read_records
from evorun.runs.schema import Metric, RatingRecord
from evorun.runs.statistics import rank_correlation

RESAMPLES = 1_999
"""Resamples of an interval here (ours): its ends are read to one decimal."""


class _Candidate(msgspec.Struct):
    id: CandidateId
    problem: str
    kind: Kind = "response"


class _Rollout(msgspec.Struct):
    step: int
    problem: str
    candidate: CandidateId | None
    reward: float | None


def rating_figures(path: Path) -> dict[str, Metric]:
    """Return Spearman correlations over a run's system prompts; none with fewer than three rated and measured prompts.

    - `rating_fitness_window`: between final ratings and measured fitness within the last window, where selection has
      to tell prompts apart;
    - `rating_fitness`: the same over the whole tree, which also separates old prompts from new ones;
    - `birth_order_fitness`: between birth order and fitness over the whole tree: the baseline without ratings.

    Fitness comes from the same rollouts as the ratings (`measured_fitness`), so these figures show how well a rating
    summarizes them. Tests under the same weights show what a rating predicts (`evorun transplant --window`). Intervals
    resample prompts.
    """
    candidates = read_records(path / "candidates.jsonl", _Candidate)
    births = [prompt.id for prompt in candidates if prompt.problem == SHARED and prompt.kind == "system_prompt"]
    # a prompt has a line per step that changed its rating; the last one wins
    ratings = {rating.candidate: rating for rating in read_records(path / f"{RATINGS}.jsonl", RatingRecord)}
    fitness = measured_fitness(list(read_records(path / f"{ROLLOUTS}.jsonl", _Rollout))) if ratings else {}
    known = [
        (order, name, ratings[name].mean or 0.0, fitness[name], ratings[name].survivor)
        for order, name in enumerate(births)
        if name in fitness and name in ratings
    ]
    groups = {
        "rating_fitness_window": [(name, rating, value) for _, name, rating, value, survivor in known if survivor],
        "rating_fitness": [(name, rating, value) for _, name, rating, value, _ in known],
        "birth_order_fitness": [(name, float(order), value) for order, name, _, value, _ in known],
    }
    figures = {name: rank_correlation([group], resamples=RESAMPLES) for name, group in groups.items() if len(group) > 2}
    return {name: figure for name, figure in figures.items() if figure.value is not None}


def measured_fitness(rollouts: Sequence[_Rollout]) -> Mapping[CandidateId, float]:
    """Return how much more reward each system prompt earns than the others in its rollouts.

    These are least-squares effects of prompts on the mean reward per step, problem and prompt. Each pair of step and
    problem has an effect, too, since weights and problems change from step to step. So prompts are compared within
    their steps, and through shared prompts across steps. If no chain of steps connects all prompts, only the largest
    connected group has values.
    """
    from scipy.sparse.csgraph import connected_components  # slow to import

    cells: dict[tuple[int, str], dict[CandidateId, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        if rollout.candidate is not None and rollout.reward is not None:
            cells[rollout.step, rollout.problem][rollout.candidate].append(rollout.reward)
    compared = [cell for cell in cells.values() if len(cell) > 1]
    names = list(dict.fromkeys(name for cell in compared for name in cell))
    if not names:
        return {}
    position = {name: index for index, name in enumerate(names)}
    # the normal equations; subtracting each cell's mean removes the effects of steps and problems
    information, rewards = np.zeros((len(names), len(names))), np.zeros(len(names))
    for cell in compared:
        indices = [position[name] for name in cell]
        means = np.array([np.mean(values) for values in cell.values()])
        information[np.ix_(indices, indices)] += np.eye(len(indices)) - 1 / len(indices)
        rewards[indices] += means - means.mean()
    _, labels = connected_components(information != 0, directed=False)
    largest = np.flatnonzero(labels == np.bincount(labels).argmax())
    effects = np.linalg.pinv(information[np.ix_(largest, largest)]) @ rewards[largest]
    return {names[index]: float(effect) for index, effect in zip(largest, effects, strict=True)}

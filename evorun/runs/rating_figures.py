"""Evidence for the ratings of system prompts: how well they order prompts as what was measured does."""

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
"""Of an interval here (ours): it is read off to a tenth."""


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
    """Return Spearman's correlations of a run's system prompts; none below three that were rated and measured.

    - `rating_fitness_window`: of the last ratings and the measured fitness, within the last window, where selection
      has to tell prompts apart;
    - `rating_fitness`: the same over the whole tree, where old prompts are told from young ones, too;
    - `birth_order_fitness`: of birth order and fitness, over the whole tree: what knowing no rating is worth.

    Fitness is measured by the same rollouts that ratings came from (`measured_fitness`), so that these figures say how
    well a rating sums them up. What it predicts, tests under the same weights say (`evorun transplant --window`).
    Intervals draw prompts again.
    """
    candidates = read_records(path / "candidates.jsonl", _Candidate)
    births = [one.id for one in candidates if one.problem == SHARED and one.kind == "system_prompt"]
    # a line for each step that changed it: the last one stays
    ratings = {one.candidate: one for one in read_records(path / f"{RATINGS}.jsonl", RatingRecord)}
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
    found = {name: rank_correlation([group], resamples=RESAMPLES) for name, group in groups.items() if len(group) > 2}
    return {name: one for name, one in found.items() if one.value is not None}


def measured_fitness(rollouts: Sequence[_Rollout]) -> Mapping[CandidateId, float]:
    """Return how much more reward each system prompt brings than the others, by its rollouts.

    The least-squares effects of prompts on the mean rewards of each step, problem and prompt, beside an effect of each
    step and problem: weights and problems differ from step to step, and prompts are compared with those of their own
    steps, and through these with others. Of prompts that no chain of steps connects only the largest group is known.
    """
    from scipy.sparse.csgraph import connected_components  # not before it is needed

    cells: dict[tuple[int, str], dict[CandidateId, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in rollouts:
        if one.candidate is not None and one.reward is not None:
            cells[one.step, one.problem][one.candidate].append(one.reward)
    compared = [cell for cell in cells.values() if len(cell) > 1]
    names = list(dict.fromkeys(name for cell in compared for name in cell))
    if not names:
        return {}
    position = {name: index for index, name in enumerate(names)}
    # the normal equations, without the effects of steps and problems: each cell's rewards less their mean
    information, rewards = np.zeros((len(names), len(names))), np.zeros(len(names))
    for cell in compared:
        inside = [position[name] for name in cell]
        means = np.array([np.mean(values) for values in cell.values()])
        information[np.ix_(inside, inside)] += np.eye(len(inside)) - 1 / len(inside)
        rewards[inside] += means - means.mean()
    _, labels = connected_components(information != 0, directed=False)
    largest = np.flatnonzero(labels == np.bincount(labels).argmax())
    effects = np.linalg.pinv(information[np.ix_(largest, largest)]) @ rewards[largest]
    return {names[index]: float(effect) for index, effect in zip(largest, effects, strict=True)}

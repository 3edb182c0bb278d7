"""What the figures of training steps say: edits of prompts by their fate, and signs that a run has not learned."""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, variance
from typing import NamedTuple

from evorun.reports import text
from evorun.runs.schema import TrainingRecord

STEPS_OF_A_MEAN = 10
"""Training steps whose figures are averaged (ours): single ones are too noisy to compare."""

_APPLIED, _REFUSED, _PROPOSALS = "edits_", "edits_refused_", "proposals_refused_"


class Edits(NamedTuple):
    """Counts over all steps, the frequent ones first."""

    applied: list[tuple[str, int]]
    """By operation."""
    refused: list[tuple[str, int]]
    """By reason."""
    proposals: list[tuple[str, int]]
    """What single problems' reflections proposed in vain, by reason."""


def is_edit(figure: str) -> bool:
    """Say of a figure's name that it counts edits: they are summed over steps, not followed from step to step."""
    return figure.startswith((_APPLIED, _PROPOSALS))


def count_edits(records: Sequence[TrainingRecord]) -> Edits:
    """Return how often edits of each kind were applied, and refused for each reason."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in (_REFUSED, _PROPOSALS, _APPLIED)}
    for record in records:
        for name, count in record.figures.items():
            kind = next((kind for kind in found if name.startswith(kind)), None)
            if kind is not None:
                found[kind][name.removeprefix(kind)] += int(count)
    return Edits(*(found[kind].most_common() for kind in (_APPLIED, _REFUSED, _PROPOSALS)))


def unlearned(records: Sequence[TrainingRecord]) -> list[str]:
    """Return a line for each sign that training has gone wrong, though it has ended: a run may finish all the same."""
    lines = []
    still = [one.step for one in records if _has_no_gradient(one)]
    if still:
        lines.append(
            f"In {len(still):,} of {len(records):,} training steps (the first: {still[0]}) the gradient was zero "
            "though rewards differed: nothing was learned in them."
        )
    rewards = [(one.step, one.figures["reward"]) for one in records if "reward" in one.figures]
    if len(rewards) >= 2 * STEPS_OF_A_MEAN:
        values = [reward for _, reward in rewards]
        starts = range(len(values) - STEPS_OF_A_MEAN + 1)
        begin = max(starts, key=lambda start: fmean(values[start : start + STEPS_OF_A_MEAN]))
        best, last = values[begin : begin + STEPS_OF_A_MEAN], values[-STEPS_OF_A_MEAN:]
        noise = sqrt((variance(best) + variance(last)) / STEPS_OF_A_MEAN)
        # less than half of what it was, and not by the luck of ten steps: the best of many is lucky itself
        if fmean(best) > 0 and fmean(last) < fmean(best) / 2 and fmean(best) - fmean(last) > 6 * noise:
            lines.append(
                f"The reward collapsed: {text.number(fmean(last))} over the last {STEPS_OF_A_MEAN} steps, after "
                f"{text.number(fmean(best))} over steps {rewards[begin][0]} to {rewards[begin][0] + len(best) - 1}."
            )
    return lines


def _has_no_gradient(record: TrainingRecord) -> bool:
    # groups of equal rewards have no gradient by themselves
    return record.figures.get("grad_norm") == 0 and record.figures.get("equal_groups", 0.0) < 1

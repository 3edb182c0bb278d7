"""Figures of training steps for the report: edits and refinements by their fate, and signs of divergence."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from evorun.runs.schema import TrainingRecord

STEPS_OF_A_MEAN = 10
"""Training steps whose figures are averaged (ours): single ones are too noisy to compare."""

_SIGNS = {
    "zero_gradient": "the gradient was zero though rewards differed: nothing was learned in them",
    "nearly_uniform": "the policy drew tokens nearly at random: its entropy was near the largest",
    "reward_collapse": "the mean reward had fallen far below its best",
}
"""Figures that training steps have where something has gone wrong (`evorun.methods.divergence`)."""

_APPLIED, _REFUSED, _PROPOSALS = "edits_", "edits_refused_", "proposals_refused_"

REFINEMENTS = {
    "rubrics_refined": "rubrics replaced",
    "rubrics_refused_": "merged rubric refused",
    "refinements_refused_": "refinement on a sample refused",
    "items_refused_": "item of a rubric refused",
    "analyses_refused_": "analysis refused",
    "analyses_cut_off": "analyses cut off",
    "samples_not_flagged": "samples without a flaw",
    "own_scores_unread": "meta reward model's own score unread",
    "refinement_samples": "samples looked at",
}
"""Counts of what a meta reward model did, by their names or what these begin with."""


class Edits(NamedTuple):
    """Counts over all steps, the frequent ones first."""

    applied: list[tuple[str, int]]
    """By operation."""
    refused: list[tuple[str, int]]
    """By reason."""
    proposals: list[tuple[str, int]]
    """Edits that reflections on single problems proposed in vain, by reason."""


def is_edit(figure: str) -> bool:
    """Say of a figure's name that it counts edits: they are summed over steps, not followed from step to step."""
    return figure.startswith((_APPLIED, _PROPOSALS, *REFINEMENTS))


def count_edits(records: Sequence[TrainingRecord]) -> Edits:
    """Return how often edits of each kind were applied, and refused for each reason."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in (_REFUSED, _PROPOSALS, _APPLIED)}
    for record in records:
        for name, count in record.figures.items():
            kind = next((kind for kind in found if name.startswith(kind)), None)
            if kind is not None:
                found[kind][name.removeprefix(kind)] += int(count)
    return Edits(*(found[kind].most_common() for kind in (_APPLIED, _REFUSED, _PROPOSALS)))


def count_refinements(records: Sequence[TrainingRecord]) -> list[tuple[str, str, int]]:
    """Return what became of refinements, the reason where it is refused, and how often, over all steps."""
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        for name, count in record.figures.items():
            kind = next((kind for kind in REFINEMENTS if name.startswith(kind)), None)
            if kind is not None:
                found[kind, name.removeprefix(kind)] += int(count)
    order = list(REFINEMENTS)
    rows = sorted(found.items(), key=lambda one: (order.index(one[0][0]), -one[1]))
    return [(REFINEMENTS[kind], reason, count) for (kind, reason), count in rows if count]


def divergence(records: Sequence[TrainingRecord]) -> list[str]:
    """Return a line for each sign that training has gone wrong: a run ends well all the same."""
    lines = []
    for sign, words in _SIGNS.items():
        steps = [record.step for record in records if record.figures.get(sign)]
        if steps:
            seen = f"In {len(steps):,} of {len(records):,} training steps (the first: {steps[0]})"
            lines.append(f"Divergence? {seen} {words}.")
    return lines

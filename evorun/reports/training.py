"""Figures of training steps for the report: outcomes of edits and refinements, clipping, signs of failure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from evorun.reports import text
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.reports.text import number, percent
from evorun.runs.schema import MetricPoint, TrainingRecord
from evorun.training.reach import MIN_REACH, compute_reach

STEPS_OF_A_MEAN = 10
"""Maximum training steps per mean (ours): single steps are too noisy to compare."""

NO_UPDATE = "no_update"
"""Figure of a training step that left the weights as they were: 1."""

MANY_CUT = 0.1
"""Share of texts cut at max_tokens from which a reader is warned (ours)."""

_SIGNS = {
    "zero_gradient": "the gradient was zero though rewards differed: nothing was learned in them",
    "nearly_uniform": "the policy sampled tokens nearly at random: its entropy was near the maximum",
    "reward_collapse": "the mean reward had fallen far below its best",
    "many_rejected": "more than a tenth of the episodes ended in a request that the engine refused",
}
"""Figures of training steps that report a failure (`evorun.training.divergence`)."""

_APPLIED, _REFUSED, _PROPOSALS = "edits_", "edits_refused_", "proposals_refused_"

REFINEMENTS = {
    "rubrics_refined": "rubrics replaced",
    "rubrics_from_proposal_": "merging unreadable, the best refinement on a sample taken",
    "rubrics_refused_": "merged rubric refused",
    "merges_retried_": "merging asked for again",
    "refinements_refused_": "refinement on a sample refused",
    "refinements_retried_": "refinement on a sample asked for again",
    "items_refused_": "item of a rubric refused",
    "analyses_refused_": "analysis refused",
    "analyses_cut_off": "analyses cut off",
    "samples_not_flagged": "samples without a flaw",
    "own_scores_unread": "meta reward model's own score unread",
    "refinement_samples": "samples looked at",
}
"""Counts of a meta reward model's actions, by their names or prefixes."""


class Edits(NamedTuple):
    """Counts over all steps, the frequent ones first."""

    applied: list[tuple[str, int]]
    """By operation; `unaggregated`: edits proposed by reflections and applied because the aggregation could not be."""
    refused: list[tuple[str, int]]
    """By reason."""
    proposals: list[tuple[str, int]]
    """Refused edits that reflections on single problems proposed, by reason."""


def is_edit(figure: str) -> bool:
    """Tell whether a figure counts edits, which are summed over steps, not followed from step to step."""
    return figure.startswith((_APPLIED, _PROPOSALS, *REFINEMENTS))


def is_sign(figure: str) -> bool:
    """Tell whether a figure reports a failure: it stands in the steps that failed alone, so its mean says nothing."""
    return figure == NO_UPDATE or figure in _SIGNS


def count_edits(records: Sequence[TrainingRecord]) -> Edits:
    """Count the edits of each kind that were applied, and the refused ones by reason."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in (_REFUSED, _PROPOSALS, _APPLIED)}
    for record in records:
        for name, count in record.figures.items():
            kind = next((kind for kind in found if name.startswith(kind)), None)
            if kind is not None:
                found[kind][name.removeprefix(kind)] += int(count)
    return Edits(*(found[kind].most_common() for kind in (_APPLIED, _REFUSED, _PROPOSALS)))


def count_refinements(records: Sequence[TrainingRecord]) -> list[tuple[str, str, int]]:
    """Return the outcomes of refinements over all steps, with the reason of refusals and their number."""
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        for name, count in record.figures.items():
            kind = next((kind for kind in REFINEMENTS if name.startswith(kind)), None)
            if kind is not None:
                found[kind, name.removeprefix(kind)] += int(count)
    order = list(REFINEMENTS)
    rows = sorted(found.items(), key=lambda item: (order.index(item[0][0]), -item[1]))
    return [(REFINEMENTS[kind], reason, count) for (kind, reason), count in rows if count]


def make_edits_table(edits: Edits) -> Table:
    """Return the numbers of applied and refused edits of system prompts."""
    outcomes = {"applied": edits.applied, "refused": edits.refused, "proposal refused": edits.proposals}
    return Table(
        [*word_columns("outcome"), *word_columns("edit or reason", format=text.words), *figure_columns("count")],
        [(outcome, edit, n) for outcome, counts in outcomes.items() for edit, n in counts],
        title="edits of system prompts",
        name="edits",
        fields=("outcome", "edit", "count"),
    )


def make_refinements_table(training: Sequence[TrainingRecord]) -> Table:
    """Return the outcomes of refinements of rubrics over all steps."""
    return Table(
        [*word_columns("refinement"), *word_columns("reason", format=text.words), *figure_columns("count")],
        list(count_refinements(training)),
        title="refinements of rubrics",
        name="refinements",
    )


def describe_gradient_clipping(series: Mapping[str, Sequence[MetricPoint]]) -> str | None:
    """Describe how many gradients were clipped, and their norms before; None if no step reports them.

    series: the figures of training steps, by name.
    """
    shares, norms = (
        [point.value for point in series.get(name, ()) if point.value is not None]
        for name in ("clipped_gradients", "grad_norm")
    )
    if not shares or not norms:
        return None
    clipped = f"training.max_grad_norm clipped the gradients of {percent(fmean(shares))} of optimiser steps"
    if not any(shares):
        clipped = "No gradient was clipped (training.max_grad_norm)"
    spread = f"median {number(median(norms))}, {number(min(norms))} to {number(max(norms))}"
    return f"{clipped}. Gradient norms before clipping, by training step: {spread}."


def find_negligible_training(config: Mapping[str, Any], records: Sequence[TrainingRecord]) -> list[str]:
    """Return a warning if the learning rates of all steps were too small to change an adapter noticeably.

    config: the run's, of an adapter's training.
    """
    training, method = (config.get(key) for key in ("training", "method"))
    rates = [record.figures["learning_rate"] for record in records if "learning_rate" in record.figures]
    if not isinstance(training, Mapping) or not isinstance(method, Mapping) or not rates:
        return []
    epochs = method.get("epochs", 1) if "ppo" in (method.get("name"), method.get("trainer")) else 1
    alpha, minibatches = training.get("alpha", ""), method.get("minibatches", 1)
    given = all(isinstance(value, int | float) for value in (alpha, epochs, minibatches))
    if training.get("weights") != "lora" or not given:
        return []
    own = compute_reach(alpha, sum(rates) * epochs * minibatches)
    if own >= MIN_REACH:
        return []
    return [
        f"Hardly trained: in {len(rates):,} training steps at these learning rates the adapter could move a layer's "
        f"outputs by {own:.1g} of its inputs at most, so the policy is nearly what it was."
    ]


def describe_missing_updates(records: Sequence[TrainingRecord]) -> str | None:
    """Say how many training steps did not change the weights; None if each did."""
    steps = [record.step for record in records if record.figures.get(NO_UPDATE)]
    if not steps:
        return None
    of, why = f"{len(records):,}", "all rewards of each group were equal, or none was given"
    if len(steps) == len(records):
        same = "scores before and after are of the same weights"
        return f"Not trained: none of {of} training steps changed the weights, since {why}; {same}."
    return f"No update: {len(steps):,} of {of} training steps (the first: {steps[0]}) taught nothing, since {why}."


def describe_cut_completions(records: Sequence[TrainingRecord]) -> str | None:
    """Say how many completions of training ran into max_tokens; None if few did."""
    shares = [record.figures["truncated"] for record in records if "truncated" in record.figures]
    if not shares or fmean(shares) < MANY_CUT:
        return None
    return f"Cut at max_tokens: {percent(fmean(shares))} of the completions in training (mean of its steps)."


def find_training_failures(records: Sequence[TrainingRecord]) -> list[str]:
    """Return a warning for each sign that training failed: such a run ends normally."""
    lines = [line] if (line := describe_missing_updates(records)) is not None else []
    for sign, words in _SIGNS.items():
        steps = [record.step for record in records if record.figures.get(sign)]
        if steps:
            seen = f"In {len(steps):,} of {len(records):,} training steps (the first: {steps[0]})"
            head = "Refused requests:" if sign == "many_rejected" else "Divergence?"
            lines.append(f"{head} {seen} {words}.")
    cut = describe_cut_completions(records)
    return lines if cut is None else [*lines, cut]

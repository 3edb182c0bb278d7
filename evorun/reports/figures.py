"""The figures of results.json beside scores, in words: the same on a page and in a terminal."""

from collections.abc import Mapping
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.hacking import MONITOR, MONITORS
from evorun.runs.schema import Manifest, Metric

SEARCH = {
    "pool_coverage": ("a right candidate in the pool", "problems"),
    "choice_given_coverage": ("of those, answered right", "problems"),
    "posterior_auc": ("right rated above wrong (chance: 50 %)", "problems with both"),
    "parsable_rate": ("parsable texts", "texts"),
}
"""Of the search: words, and what is counted."""

JUDGE = {
    "decisive_rate": ("decisive duels: a winner, the same in each order asked", "duels"),
    "judge_agreement": ("won by the better one (chance: 50 %)", "decisive duels of unequal ones"),
    "position_a_rate": ("for the one shown first (unbiased: 50 %)", "verdicts"),
    "tie_rate": ("ties", "verdicts"),
    "invalid_rate": ("unparsable verdicts", "verdicts"),
    "refused_rate": ("judgments that the engine refused", "requests"),
}
"""Of the judge."""

RATINGS = {
    "rating_fitness_window": ("rating and measured fitness, within the last window", "system prompts"),
    "rating_fitness": ("rating and measured fitness, over the whole tree", "system prompts"),
    "birth_order_fitness": ("birth order and measured fitness, over the whole tree", "system prompts"),
}
"""Rank correlations of system prompts."""

TRAINING = {
    "sampler_kl": "sampler KL (nats per token)",
    "clip_ratio": "clipped tokens (share)",
    "kl": "KL from the reference (nats per token)",
    "entropy": "entropy (nats per token)",
    "equal_groups": "groups of equal rewards (share)",
    "reward_maximum": "most points that the rubric gives",
    "truncated": "completions cut off (share)",
    "grad_norm": "gradient norm (before clipping)",
    "clipped_gradients": "gradients clipped (share of optimiser steps)",
    "entropy_fraction": "entropy (share of the largest)",
    "genotypic_diversity": "diversity of principles (mean Jaccard distance of two prompts)",
    "phenotypic_diversity": "diversity of scores (mean difference of two prompts on a problem)",
    **{MONITOR + name: label for name, label in MONITORS.items()},
}
"""Of training steps, where the name alone does not say it."""


def training_words(name: str) -> str:
    """Write the name of a training step's figure as words."""
    return TRAINING.get(name) or text.words(name)


class FigureRow(NamedTuple):
    """A line of a table of figures."""

    name: str
    value: str
    interval: str
    n: str
    of: str
    """The things that n counts."""


def figure_rows(
    metrics: Mapping[str, Metric], words: Mapping[str, tuple[str, str]], *, shares: bool = True
) -> list[FigureRow]:
    """Return a line for each of the figures that a run has and that are named.

    shares: whether they are shares, shown as percentages; else numbers.
    """
    value, interval = (text.percent, text.interval) if shares else (text.number, text.number_interval)
    return [
        FigureRow(name, value(one.value), interval(one.ci95), text.count(one.n), of)
        for key, (name, of) in words.items()
        if (one := metrics.get(key)) is not None and one.n
    ]


def judges(manifest: Manifest) -> bool:
    """Tell whether the method has candidates judged in duels, by its settings."""
    settings = manifest.config.get("method")
    return isinstance(settings, Mapping) and "judge_temperature" in settings and settings.get("choose") != "oracle"


def judge_warning(metrics: Mapping[str, Metric]) -> str | None:
    """Return a sentence on the consequences when no duel was decisive; None when some were, or there were none."""
    decisive, position = metrics.get("decisive_rate"), metrics.get("position_a_rate")
    if decisive is None or decisive.value != 0:
        return None
    meaning = "no duel decided anything: the posterior stays the prior, and the ranking says nothing about quality."
    # in both orders the same letter: each duel was a draw, and nothing was learned from any of them
    if position is not None and position.value in (0, 1):
        named = "A" if position.value else "B"
        return f"Position bias 100 %: whenever the judge chose, it named {named}, whoever was shown there, so {meaning}"
    return f"None of the {decisive.n} duels was decisive: {meaning}"

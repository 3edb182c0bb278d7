"""The figures of results.json beside scores, in words: the same on a page and in a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from evorun.reports import text
from evorun.reports.hacking import MONITOR, MONITORS
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.manifest import Manifest
from evorun.runs.schema import Metric
from evorun.runs.scores import Score, primary_score

SEARCH = {
    "pool_coverage": ("a right candidate in the pool", "problems"),
    "choice_given_coverage": ("of those, answered right", "problems"),
    "posterior_auc": ("right rated above wrong (chance: 50 %)", "problems with both"),
    "parsable_rate": ("parsable texts", "texts"),
}
"""Figures of the search: words, and what n counts."""

SELECTION = {
    "step_oracle": "best of the step's own candidates",
    "distinct_answers": "distinct answers among them (share)",
    "belief_auc": "belief higher on problems solved (chance: 0.5)",
    "judge_agreement": "duels won by the better one (chance: 0.5)",
}
"""Series of the selection that have a panel each."""

JUDGE = {
    "decisive_rate": ("decisive duels: a winner (of two orders, in both)", "duels"),
    "judge_agreement": ("won by the better one (chance: 50 %)", "decisive duels of unequal ones"),
    "position_a_rate": ("for the one shown first (unbiased: 50 %)", "verdicts"),
    "tie_rate": ("ties", "verdicts"),
    "invalid_rate": ("unparsable verdicts", "verdicts"),
    "refused_rate": ("judgments that the engine refused", "requests"),
}
"""Figures of the judge."""

RIGHT_AGAINST_WRONG = ("right won against wrong (chance: 50 %)", "decisive duels of a right and a wrong one")
"""The judge's agreement on tasks with right and wrong, where no other candidates are unequal."""

RATINGS = {
    "rating_fitness_window": ("rating and measured fitness, within the last window", "system prompts"),
    "rating_fitness": ("rating and measured fitness, over the whole tree", "system prompts"),
    "birth_order_fitness": ("birth order and measured fitness, over the whole tree", "system prompts"),
}
"""Rank correlations of system prompts."""

TRAINING = {
    "sampler_kl": "sampler KL (nats per token)",
    "clip_ratio": "clipped tokens (share)",
    "lag": "age of the rollouts (updates)",
    "kl": "KL from the reference (nats per token)",
    "entropy": "entropy (nats per token)",
    "equal_groups": "groups with equal rewards (share)",
    "reward_maximum": "maximum points of the rubric",
    "truncated": "truncated completions (share)",
    "grad_norm": "gradient norm (before clipping)",
    "data_skill": "skill that the conversations show (simulated)",
    "gradient": "gradient of the skill (simulated)",
    "skill_gain": "gain in skill (simulated)",
    "clipped_gradients": "gradients clipped (share of optimiser steps)",
    "entropy_fraction": "entropy (share of the largest)",
    "genotypic_diversity": "diversity of principles (mean Jaccard distance of two prompts)",
    "phenotypic_diversity": "diversity of scores (mean difference of two prompts on a problem)",
    "prefill_tokens_per_second": "prompt tokens per second of sampling",
    "decode_tokens_per_second": "completion tokens per second of sampling",
    "train_tokens_per_second": "tokens per second of training",
    "mfu": "model FLOPs utilisation (share of the GPU's peak)",
    "trainer_memory": "peak memory of the trainer (GiB)",
    "run_memory": "peak main memory of the run's process (GiB)",
    "vllm_memory": "peak main memory of vLLM's processes (GiB)",
    "training_seconds": "seconds of training",
    "weight_sync_seconds": "seconds of handing over weights",
    "sleep_seconds": "seconds in which engines fall asleep and wake",
    "probes": "checks of weights after a sleep",
    "probe_reloads": "weights read again after such a check",
    "probe_distance": "largest difference of log-probabilities after a sleep (nats)",
    "generation_seconds": "seconds of waiting for completions",
    "judging_seconds": "seconds of waiting for rewards and judges",
    "other_seconds": "seconds of neither",
    **{MONITOR + name: label for name, label in MONITORS.items()},
}
"""Figures of training steps whose names need explaining."""


def describe_figure(name: str) -> str:
    """Describe a training step's figure by its name."""
    return TRAINING.get(name) or text.words(name)


def word_judge(scores: Sequence[Score]) -> dict[str, tuple[str, str]]:
    """Return the words of `JUDGE` for a task with these scores, the primary one first."""
    return {**JUDGE, **({"judge_agreement": RIGHT_AGAINST_WRONG} if primary_score(scores).is_correctness else {})}


def make_figures_table(
    metrics: Mapping[str, Metric], words: Mapping[str, tuple[str, str]], heading: str = "share", *, page: bool = False
) -> Table:
    """Return a row for each named figure that a run has: `SEARCH`, `word_judge` (shares) or `RATINGS` (numbers).

    page: name what n counts, too, for which a terminal has no room.
    """
    value, interval = (text.number, text.number_interval) if words is RATINGS else (text.percent, text.interval)
    shown = {key: metrics[key] for key in words if key in metrics and metrics[key].n}
    rows = []
    for key, metric in shown.items():
        name, unit = words[key]
        name, n = (text.sentence(name), f"{metric.n:,} {unit}") if page else (name, f"{metric.n:,}")
        rows.append((name, value(metric.value), interval(metric.ci95), n))
    caption = "" if words is RATINGS else describe_share_intervals(shown.values())
    return Table([*word_columns(heading), *figure_columns("value", "95 % interval", "n")], list(rows), caption=caption)


def describe_share_intervals(shares: Iterable[Metric]) -> str:
    """Say what the intervals of shares are about: problems, whatever n counts (`pooled_share`)."""
    ends = {text.percent(share.value) for share in shares if share.value in (0, 1)}
    over = "Intervals are over problems, whatever n counts: texts and duels of one problem are not independent."
    if not ends:
        return over
    return f"{over} At {' and '.join(sorted(ends))} they are Wilson's, with each problem as one trial."


def has_judge(manifest: Manifest) -> bool:
    """Tell whether the method's settings have a judge compare candidates in duels."""
    settings = manifest.config.get("method")
    if not isinstance(settings, Mapping) or "judge_temperature" not in settings:
        return False
    # Best-of-N also chooses without a judge: by an oracle, by a rubric, or by votes that other rewards weigh.
    return settings.get("choose") not in ("oracle", "rubric") and settings.get("reward", "duels") == "duels"


_VOTING_METHODS = ("self_consistency", "deepconf")
_VOTES = ("majority", "majority_of_bests", "weighted", "best_of_majority")
"""Values of `method.choose` by which equal answers count together."""


def chooses_by_votes(manifest: Manifest) -> bool:
    """Tell whether the method says that responses vote on the answer, or its settings do: equal or weighted votes."""
    settings = manifest.config.get("method")
    if not isinstance(settings, Mapping):
        return False
    return manifest.votes or settings.get("name") in _VOTING_METHODS or settings.get("choose") in _VOTES


def warn_of_indecision(metrics: Mapping[str, Metric]) -> str | None:
    """Return a warning if no duel was decisive; None if any was, or without duels."""
    decisive, position = metrics.get("decisive_rate"), metrics.get("position_a_rate")
    if decisive is None or decisive.value != 0:
        return None
    meaning = "no duel decided anything: the posterior stays the prior, and the ranking says nothing about quality."
    # the same letter in both orders: each duel was a draw and told nothing
    if position is not None and position.value in (0, 1):
        named = "A" if position.value else "B"
        return f"Position bias 100 %: whenever the judge chose, it named {named}, whoever was shown there, so {meaning}"
    return f"None of the {decisive.n} duels was decisive: {meaning}"

"""Sentences on the table of the search and the judge, and on what its figures are over."""

from collections.abc import Sequence
from statistics import fmean

from evorun.reports import text
from evorun.reports.comparison.comparison import ComparedRuns
from evorun.reports.comparison.names import TASK
from evorun.reports.comparison.notes import describe_batches
from evorun.reports.comparison.rows import AGREEMENT, AUC, CHOICE, POOLED, Row
from evorun.reports.comparison.runs import ANSWERED

OTHER_DUELS = 0.1
"""Difference in the share of decisive duels above which arms are judged by duels of another kind."""


def search_note(comparison: ComparedRuns) -> str:
    """Explain the columns of the search and the judge."""
    unequal = "unequal candidates that the better"
    if all(primary.is_correctness for primary in comparison.primaries):
        unequal = "a correct and an incorrect candidate that the correct"
    explained = {
        ANSWERED: "Candidates answered: the share of all candidates with an answer; a refused request gives none.",
        "parsable_rate": "Parsable texts: the share of all texts received, retries included.",
        "pool_coverage": "Pool coverage: the share of problems with any correct candidate. Choice given coverage: the "
        "share of these whose final answer was correct, and their number over all runs.",
        AGREEMENT: f"Judge agreement: the share of decisive duels between {unequal} one won, "
        f"and the number of these duels, over all runs.",
        AUC: "Posterior AUC: how often the method rates a correct candidate above an incorrect one of the same "
        "problem, and the number of problems that have both, over all runs.",
    }
    shown = {name for row in comparison.rows for name, metric in row.metrics.items() if metric.value is not None}
    sentences = [sentence for name, sentence in explained.items() if name in shown]
    if shown & set(POOLED):
        known = any(row.get_metric(name).ci95 for row in comparison.rows for name in POOLED)
        drawn = "Their intervals draw problems again, each with all its runs: they are about no other seeds."
        sentences.append(drawn if known else "With small numbers of these, they say little.")
    if any(row.best_of_pool is not None for row in comparison.rows):
        sentences.append(
            "Best of pool: the mean score of each problem's best candidate. By as much as the answers score less, the "
            "choice lost; what the pool lacks, the search did not find."
        )
    sentences += filter(None, [_warn_of_decisive_shares(comparison.rows)])
    sentences += filter(None, (_compare_on_shared_problems(comparison.rows, name) for name in (CHOICE, AUC)))
    if any(row.planned is not None and row.generation < row.planned for row in comparison.rows):
        reached = f"{comparison.step.capitalize()} reached: N of M where the settings plan M"
        sentences.append(f"{reached}; a method without such a number ends with its budget, or by itself.")
    if any(row.generation > 0 for row in comparison.rows):
        sentences += filter(None, [describe_batches(comparison.runs)])
    if any(row.crossovers is not None for row in comparison.rows):
        sentences.insert(0, "Crossovers per run: system prompts made by crossover, the mean over an arm's runs.")
    return " ".join(sentences)


def _warn_of_decisive_shares(rows: Sequence[Row]) -> str:
    """Say that arms call other shares of their duels decisive, where they do; else empty."""
    judged = [row for row in rows if row.get_metric(AGREEMENT).n and row.get_metric("decisive_rate").value is not None]
    shares = {row.name: row.get_metric("decisive_rate").value or 0.0 for row in judged}
    if not shares or max(shares.values()) - min(shares.values()) < OTHER_DUELS:
        return ""
    named = ", ".join(f"{name} {text.percent(share)}" for name, share in shares.items())
    return (
        f"Decisive are other shares of the duels in each arm ({named}): with both orders (method.orders=2) only those "
        "that one candidate wins in both, which are the easier ones. So their judge agreement does not compare judges."
    )


def _compare_on_shared_problems(rows: Sequence[Row], name: str) -> str:
    """Return a figure on what all arms have of it, where they have it of other problems or seeds; else empty."""
    compared = [row for row in rows if not row.is_baseline and row.get_metric(name).n]
    counted = [row.by_problem[name] for row in compared]
    keys = [own.keys() for own in counted]
    if not all(counted) or all(own == keys[0] for own in keys) or len({row.facts[TASK] for row in compared}) > 1:
        return ""
    what = {CHOICE: "Choice given coverage", AUC: "Posterior AUC"}[name]
    shared = set(keys[0]).intersection(*keys[1:])
    if not shared:
        return f"{what} is over other problems in each arm, and none is in all of them, so do not compare it."
    means = (
        f"{row.name} {text.percent(fmean(own[key] for key in shared))}"
        for row, own in zip(compared, counted, strict=True)
    )
    n = f"{text.count(len(shared))}{', over all seeds' if any(row.seeds > 1 for row in compared) else ''}"
    return f"{what} is over other problems in each arm. On those that all arms share ({n}): {', '.join(means)}."

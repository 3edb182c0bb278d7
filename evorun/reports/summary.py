"""The end of a run in the terminal: scores by stratum, cost by role, and where the report is."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.banners import banners
from evorun.reports.figures import JUDGE, RATINGS, SEARCH, figure_rows, training_words
from evorun.reports.overview import Outcome, load_outcome
from evorun.reports.scores import score_cells, score_rows
from evorun.reports.tables import new_table
from evorun.reports.text import (
    MISSING,
    cost_row,
    count,
    duration,
    number,
    number_interval,
    percent,
    wasted_rows,
)
from evorun.reports.training import STEPS_OF_A_MEAN, count_edits, count_refinements, is_edit
from evorun.runs.paths import display
from evorun.runs.reading import read_metrics, read_training
from evorun.runs.results import OVERLONG, SHORTENED
from evorun.runs.schema import MetricPoint, TrainingRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import Proportion

if TYPE_CHECKING:
    from rich.table import Table

    from evorun.runs.terminal import Terminal


def print_summary(run_dir: Path, console: "Terminal") -> None:
    """Print the tables of one run. Raises RunDirectoryError or DataError."""
    outcome = load_outcome(run_dir)
    for line in banners(outcome):
        console.print(line, style="bold yellow")
    manifest, primary = outcome.manifest, outcome.primary
    table = new_table(f"{manifest.method} on {manifest.task}", "stratum", text.label(primary), "95 % interval", "n")
    # a task without strata calls its only one `all`
    for name, metrics in outcome.by_stratum.items() if list(outcome.by_stratum) != ["all"] else ():
        table.add_row(name, *score_cells(primary, metrics.get(primary.name)))
    table.add_section()
    overall = score_cells(primary, outcome.metrics.get(primary.name))
    table.add_row("all" if outcome.finished else "all so far", *overall)
    console.print_table(table)
    if outcome.other_scores:
        scores = new_table("scores", "stratum", "score", "mean", "95 % interval", "n", left=(0, 1))
        for row in score_rows(outcome):
            if row.begins_group:
                scores.add_section()
            scores.add_row(*row.cells)
        console.print_table(scores)
    if outcome.cost:
        console.print_table(_cost_table(outcome))
        if outcome.cost_note:
            console.print(outcome.cost_note)
    if outcome.wasted:
        wasted = new_table(
            "attempts of model calls without an answer", "what came", "attempts", "tokens, partly estimated"
        )
        for cells in wasted_rows(outcome.wasted):
            wasted.add_row(*cells)
        console.print_table(wasted)
    training = read_training(run_dir)
    if training:
        console.print_table(_training_table(training))
        if (edits := _edits_table(training)).row_count:
            console.print_table(edits)
        if (refinements := _refinements_table(training)).row_count:
            console.print_table(refinements)
        console.print_table(_effect_table(read_metrics(run_dir), outcome.scores))
    if ratings := figure_rows(outcome.metrics, RATINGS, shares=False):
        table = new_table("evidence for ratings", "rank correlation (Spearman)", "value", "95 % interval", "n")
        for figure in ratings:
            table.add_row(figure.name, figure.value, figure.interval, figure.n)
        console.print_table(table)
    diagnostics = _diagnostics_table(outcome)
    if diagnostics.row_count:
        console.print_table(diagnostics)
    report = run_dir / "report.html"
    path = display(report) if report.exists() else f"none yet: evorun report {shlex.quote(display(run_dir))}"
    # soft_wrap: a path broken over two lines cannot be copied
    console.print(f"Report: {path}", soft_wrap=True)


def _training_table(records: Sequence[TrainingRecord]) -> "Table":
    """Show each figure's mean over the first and the last steps."""
    n = min(max(len(records) // 2, 1), STEPS_OF_A_MEAN)
    table = new_table("training", "figure", f"first {count(n)} steps", f"last {count(n)} steps")
    names = dict.fromkeys(name for record in records for name in record.figures)
    for name in (name for name in names if not is_edit(name)):
        cells = []
        for part in (records[:n], records[-n:]):
            values = [record.figures[name] for record in part if name in record.figures]
            cells.append(number(sum(values) / len(values)) if values else MISSING)
        table.add_row(training_words(name), *cells)
    return table


def _edits_table(records: Sequence[TrainingRecord]) -> "Table":
    """Show how often edits of system prompts were applied or refused, over all steps."""
    table = new_table("edits of system prompts", "fate", "edit or reason", "count", left=(0, 1))
    edits = count_edits(records)
    fates = {"applied": edits.applied, "refused": edits.refused, "proposal refused": edits.proposals}
    for fate, counts in fates.items():
        for name, times in counts:
            table.add_row(fate, text.words(name), count(times))
    return table


def _refinements_table(records: Sequence[TrainingRecord]) -> "Table":
    """Show what became of refinements of rubrics, over all steps."""
    table = new_table("refinements of rubrics", "fate", "reason", "count", left=(0, 1))
    for fate, reason, times in count_refinements(records):
        table.add_row(fate, text.words(reason), count(times))
    return table


def _effect_table(points: Sequence[MetricPoint], scores: Sequence[Score]) -> "Table":
    """Show the test problems' figures at the first evaluation, before any step, and at the last one."""
    table = new_table("test problems, before and after training", "figure", "before", "after", "steps", "n")
    for score in scores:
        found = [(point, point.value) for point in points if point.name == score.name and point.value is not None]
        if found:
            (_, before), (last, after) = found[0], found[-1]
            values = [text.value(score, before), text.value(score, after)]
            table.add_row(text.label(score), *values, count(last.step), count(last.n))
    return table


def _cost_table(outcome: Outcome) -> "Table":
    took = f" ({duration(outcome.manifest.seconds)})" if outcome.manifest.seconds is not None else ""
    table = new_table(
        f"cost{took}", "role", "calls", "prompt tokens", "completion tokens", "model time, summed over calls"
    )
    for role, spent in outcome.cost.items():
        if role == "total":
            table.add_section()
        table.add_row(*cost_row(role, spent))
    return table


def _diagnostics_table(outcome: Outcome) -> "Table":
    title = "search and judge" if "decisive_rate" in outcome.metrics else "search"
    table = new_table(title, "share", "value", "95 % interval", "n")
    for words in (SEARCH, JUDGE):
        for row in figure_rows(outcome.metrics, words):
            table.add_row(row.name, row.value, row.interval, row.n)
    # without intervals: texts of one problem are not independent, and those above are over problems
    for name, share in _losses(outcome).items():
        if share.n:
            table.add_row(name, percent(share.value), MISSING, count(share.n))
    known = {*SEARCH, *JUDGE, *RATINGS, *(score.name for score in outcome.scores)}
    for name, metric in outcome.metrics.items():
        if name not in known:
            table.add_row(name, number(metric.value), number_interval(metric.ci95), count(metric.n))
    return table


def _losses(outcome: Outcome) -> Mapping[str, Proportion]:
    """Return the shares of calls and candidates that were lost; none before a finished run has counted them."""
    if not outcome.finished:
        return {}
    counts = outcome.counts
    texts, refused = counts.get("texts", 0), sum(outcome.refused.values())
    calls = sum(spent.calls for role, spent in outcome.cost.items() if role != "total")
    return {
        # where the run has the share of parsable texts, with an interval over problems, this would be it once more
        **(
            {}
            if "parsable_rate" in outcome.metrics
            else {"unparsable texts": _share(counts["unparsable_texts"], texts)}
        ),
        "texts cut at max_tokens": _share(counts.get("truncated_texts", 0), texts),
        **({"texts cut beyond max_tokens": _share(counts[OVERLONG], texts)} if OVERLONG in counts else {}),
        **({"texts of which prompts show a part": _share(counts[SHORTENED], texts)} if SHORTENED in counts else {}),
        "requests refused by the engine, of all roles": _share(refused, calls),
        "lost candidates (unparsable or refused)": _share(counts["unparsed_candidates"], counts["candidates"]),
    }


def _share(lost: int, n: int) -> Proportion:
    return Proportion(lost, max(lost, n))

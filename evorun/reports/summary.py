"""The end of a run in the terminal: scores by stratum, cost by role, and where the report is."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.facts import is_remark, list_warnings
from evorun.reports.figures import (
    JUDGE,
    RATINGS,
    SEARCH,
    describe_figure,
    describe_share_intervals,
    make_figures_table,
    word_judge,
)
from evorun.reports.given_prompts import load_prompt_scores, make_prompts_table
from evorun.reports.overview import Outcome, load_outcome
from evorun.reports.run_tables import (
    make_cost_table,
    make_model_table,
    make_primary_table,
    make_scores_table,
    make_wasted_table,
)
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.reports.text import count, number, number_interval, percent
from evorun.reports.training import (
    NO_UPDATE,
    STEPS_OF_A_MEAN,
    count_edits,
    is_edit,
    is_sign,
    make_edits_table,
    make_refinements_table,
)
from evorun.runs.paths import display
from evorun.runs.reading import read_metrics, read_training
from evorun.runs.results import OVERLONG, SAVED, SHORTENED, UNSURE
from evorun.runs.schema import MetricPoint, TrainingRecord
from evorun.runs.statistics import Proportion

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal


def print_summary(run_dir: Path, console: "Terminal") -> None:
    """Print the tables of one run. Raises RunDirectoryError or DataError."""
    outcome = load_outcome(run_dir)
    for line in list_warnings(outcome):
        console.print(line, style=None if is_remark(line) else "bold yellow")
    console.print_table(make_primary_table(outcome).to_rich())
    console.print_table(make_prompts_table(outcome, load_prompt_scores(outcome)).to_rich())
    console.print_table(make_scores_table(outcome).to_rich())
    console.print_table(make_cost_table(outcome).to_rich())
    console.print_table(make_model_table(outcome).to_rich())
    if outcome.cost and outcome.cost_note:
        console.print(outcome.cost_note)
    console.print_table(make_wasted_table(outcome).to_rich())
    training = read_training(run_dir)
    if training:
        for table in (
            _make_training_table(training),
            make_edits_table(count_edits(training)),
            make_refinements_table(training),
            _make_effect_table(read_metrics(run_dir), outcome, training),
        ):
            console.print_table(table.to_rich())
    ratings = make_figures_table(outcome.metrics, RATINGS, "rank correlation (Spearman)")
    console.print_table(replace(ratings, title="evidence for ratings").to_rich())
    console.print_table(_make_diagnostics_table(outcome).to_rich())
    report = run_dir / "report.html"
    path = display(report) if report.exists() else f"none yet: evorun report {shlex.quote(display(run_dir))}"
    # soft_wrap: a path broken over two lines cannot be copied
    console.print(f"Report: {path}", soft_wrap=True)


def describe_complete(run_dir: Path) -> str:
    """Return a line on a complete run: its primary score with its interval, and the second one.

    Raises RunDirectoryError or DataError.
    """
    outcome = load_outcome(run_dir, shows_records=False)
    score, metric = outcome.primary, outcome.metrics.get(outcome.primary.name)
    line = f"{display(run_dir)}: complete"
    if metric is None:
        return line
    interval = f" (95 % interval {text.value_interval(score, metric.ci95)})" if metric.ci95 else ""
    shown = f"{line}, {text.label(score)} {text.value(score, metric.value)}{interval}"
    if outcome.scored_prompt:
        shown += f" under {outcome.scored_prompt}"
    second = outcome.second
    if second is None or (other := outcome.metrics.get(second.name)) is None:
        return shown
    return f"{shown}, {text.label(second)} {text.value(second, other.value)}"


def _make_training_table(records: Sequence[TrainingRecord]) -> Table:
    """Return each figure's mean over the first and the last steps."""
    n = min(max(len(records) // 2, 1), STEPS_OF_A_MEAN)
    rows = []
    for name in dict.fromkeys(name for record in records for name in record.figures):
        if is_edit(name) or is_sign(name):
            continue
        parts = (
            [record.figures[name] for record in part if name in record.figures] for part in (records[:n], records[-n:])
        )
        rows.append((describe_figure(name), *(fmean(values) if values else None for values in parts)))
    headings = ("first step", "last step") if n == 1 else (f"first {count(n)} steps", f"last {count(n)} steps")
    return Table([*word_columns("figure"), *figure_columns(*headings, format=number)], list(rows), title="training")


def _make_effect_table(points: Sequence[MetricPoint], outcome: Outcome, training: Sequence[TrainingRecord]) -> Table:
    """Return the problems' scores at the first evaluation, before any step, and at the last one."""
    columns = [*word_columns("figure"), *figure_columns("before", "after", "steps", "n")]
    same = all(record.figures.get(NO_UPDATE) for record in training)
    split = (outcome.manifest.config.get("task") or {}).get("split")
    problems = "problems of the training split" if split in ("train", "training") else "test problems"
    title = f"{problems}, before and after training{' (of the same weights)' if same else ''}"
    table = Table(columns, title=title)
    for score in outcome.scores:
        found = [(point, point.value) for point in points if point.name == score.name and point.value is not None]
        if found:
            (_, before), (last, after) = found[0], found[-1]
            values = [text.value(score, before), text.value(score, after)]
            table.rows.append((text.label(score), *values, last.step, last.n))
    return table


def _make_diagnostics_table(outcome: Outcome) -> Table:
    search, judge = (make_figures_table(outcome.metrics, words) for words in (SEARCH, word_judge(outcome.scores)))
    # without intervals: texts of one problem are not independent, and those above are over problems
    shares = {**_compute_savings(outcome), **_compute_losses(outcome)}
    losses = [(name, percent(share.value), None, share.n) for name, share in shares.items() if share.n]
    known = {*SEARCH, *JUDGE, *RATINGS, *(score.name for score in outcome.scores)}
    others = [
        (name, number(metric.value), number_interval(metric.ci95), metric.n)
        for name, metric in outcome.metrics.items()
        if name not in known
    ]
    title = "search and judge" if "decisive_rate" in outcome.metrics else "search"
    caption = describe_share_intervals(outcome.metrics[key] for key in (*SEARCH, *JUDGE) if key in outcome.metrics)
    rows = [*search.rows, *judge.rows]
    return replace(search, rows=[*rows, *losses, *others], title=title, caption=caption if rows else "")


def _compute_savings(outcome: Outcome) -> Mapping[str, Proportion]:
    """Return the shares of calls and completion tokens that a method saved by ending early, if it did."""
    spent = [usage for role, usage in outcome.cost.items() if role != "total"]
    whole = (sum(usage.calls for usage in spent), sum(usage.completion_tokens for usage in spent))
    names = ("calls saved", "completion tokens saved (estimate)")
    saved = [outcome.counts.get(name, 0) for name in SAVED]
    return {name: Proportion(part, part + n) for name, part, n in zip(names, saved, whole, strict=True) if part > 0}


def _compute_losses(outcome: Outcome) -> Mapping[str, Proportion]:
    """Return the shares of calls and candidates that were lost; none before a finished run has counted them."""
    if not outcome.finished:
        return {}
    counts = outcome.counts
    texts, refused = counts.get("texts", 0), sum(outcome.refused.values())
    calls = sum(spent.calls for role, spent in outcome.cost.items() if role != "total")
    lost = {
        "unparsable texts": (counts["unparsable_texts"], texts),
        "texts cut at max_tokens": (counts.get("truncated_texts", 0), texts),
        "texts cut beyond max_tokens": (counts.get(OVERLONG), texts),
        "texts ended for low confidence": (counts.get(UNSURE), texts),
        "texts shortened in prompts": (counts.get(SHORTENED), texts),
        "requests refused by the engine, of all roles": (refused, calls),
        "lost candidates (unparsable or refused)": (counts["unparsed_candidates"], counts["candidates"]),
    }
    if "parsable_rate" in outcome.metrics:  # the same share, with an interval over problems
        del lost["unparsable texts"]
    return {name: Proportion(part, max(part, whole)) for name, (part, whole) in lost.items() if part is not None}

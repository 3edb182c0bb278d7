"""The end of a run in the terminal: scores by stratum, cost by role, and where the report is."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.facts import banners
from evorun.reports.figures import JUDGE, RATINGS, SEARCH, figure_rows, training_words
from evorun.reports.overview import Outcome, load_outcome
from evorun.reports.run_tables import cost_table, primary_table, scores_table, wasted_table
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.reports.text import MISSING, count, number, number_interval, percent
from evorun.reports.training import STEPS_OF_A_MEAN, count_edits, edits_table, is_edit, refinements_table
from evorun.runs.paths import display
from evorun.runs.reading import read_metrics, read_training
from evorun.runs.results import OVERLONG, SHORTENED
from evorun.runs.schema import MetricPoint, TrainingRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import Proportion

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal


def print_summary(run_dir: Path, console: "Terminal") -> None:
    """Print the tables of one run. Raises RunDirectoryError or DataError."""
    outcome = load_outcome(run_dir)
    for line in banners(outcome):
        console.print(line, style="bold yellow")
    console.print_table(primary_table(outcome).in_terminal())
    console.print_table(scores_table(outcome).in_terminal())
    console.print_table(cost_table(outcome).in_terminal())
    if outcome.cost and outcome.cost_note:
        console.print(outcome.cost_note)
    console.print_table(wasted_table(outcome).in_terminal())
    training = read_training(run_dir)
    if training:
        for table in (
            _training_table(training),
            edits_table(count_edits(training)),
            refinements_table(training),
            _effect_table(read_metrics(run_dir), outcome.scores),
        ):
            console.print_table(table.in_terminal())
    ratings = [row[:4] for row in figure_rows(outcome.metrics, RATINGS, shares=False)]
    columns = [*word_columns("rank correlation (Spearman)"), *figure_columns("value", "95 % interval", "n")]
    console.print_table(Table(columns, [*ratings], title="evidence for ratings").in_terminal())
    console.print_table(_diagnostics_table(outcome).in_terminal())
    report = run_dir / "report.html"
    path = display(report) if report.exists() else f"none yet: evorun report {shlex.quote(display(run_dir))}"
    # soft_wrap: a path broken over two lines cannot be copied
    console.print(f"Report: {path}", soft_wrap=True)


def _training_table(records: Sequence[TrainingRecord]) -> Table:
    """Show each figure's mean over the first and the last steps."""
    n = min(max(len(records) // 2, 1), STEPS_OF_A_MEAN)
    steps = figure_columns(f"first {count(n)} steps", f"last {count(n)} steps")
    table = Table([*word_columns("figure"), *steps], title="training")
    names = dict.fromkeys(name for record in records for name in record.figures)
    for name in (name for name in names if not is_edit(name)):
        cells = []
        for part in (records[:n], records[-n:]):
            values = [record.figures[name] for record in part if name in record.figures]
            cells.append(number(sum(values) / len(values)) if values else MISSING)
        table.rows.append((training_words(name), *cells))
    return table


def _effect_table(points: Sequence[MetricPoint], scores: Sequence[Score]) -> Table:
    """Show the test problems' figures at the first evaluation, before any step, and at the last one."""
    columns = [*word_columns("figure"), *figure_columns("before", "after", "steps", "n")]
    table = Table(columns, title="test problems, before and after training")
    for score in scores:
        found = [(point, point.value) for point in points if point.name == score.name and point.value is not None]
        if found:
            (_, before), (last, after) = found[0], found[-1]
            values = [text.value(score, before), text.value(score, after)]
            table.rows.append((text.label(score), *values, last.step, last.n))
    return table


def _diagnostics_table(outcome: Outcome) -> Table:
    title = "search and judge" if "decisive_rate" in outcome.metrics else "search"
    table = Table([*word_columns("share"), *figure_columns("value", "95 % interval", "n")], title=title)
    for words in (SEARCH, JUDGE):
        table.rows.extend(row[:4] for row in figure_rows(outcome.metrics, words))
    # without intervals: texts of one problem are not independent, and those above are over problems
    for name, share in _losses(outcome).items():
        if share.n:
            table.rows.append((name, percent(share.value), None, share.n))
    known = {*SEARCH, *JUDGE, *RATINGS, *(score.name for score in outcome.scores)}
    for name, metric in outcome.metrics.items():
        if name not in known:
            table.rows.append((name, number(metric.value), number_interval(metric.ci95), metric.n))
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

"""A comparison in the terminal: scores and cost, the pairs, and where the page is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.notes import (
    SCORE_PAIRS_NOTE,
    few_seeds_lines,
    floor_line,
    pairs_heading,
    pairs_note,
    seeds_note,
    shared_line,
    source_line,
    unpaired_line,
)
from evorun.reports.comparison.refinement import NOTE as OVERHEAD_NOTE
from evorun.reports.comparison.refinement import overhead_table
from evorun.reports.comparison.rows import Row
from evorun.reports.comparison.tables import (
    cost_table,
    main_table,
    pairs_table,
    reported_steps_table,
    reported_strata_table,
    score_pairs_table,
    scores_table,
    search_table,
    strata_table,
)
from evorun.runs.paths import display

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal


def print_comparison(comparison: Comparison, page: Path, console: "Terminal") -> None:
    """Print the tables of a comparison whose page has been written."""
    for line in comparison.warnings:
        console.print(line, style="bold yellow")
    _print_main_table(shared_line(comparison), comparison, comparison.rows, console)
    if comparison.has_seeds:
        _print_main_table("single runs", comparison, comparison.run_rows, console)
        console.print(seeds_note(comparison))
    for line in few_seeds_lines(comparison):
        console.print(line, style="yellow")
    for table in (
        scores_table(comparison.rows),
        search_table(comparison.rows, comparison.step),
        reported_strata_table(comparison),
        reported_steps_table(comparison),
    ):
        console.print_table(table.in_terminal())
    for source, note in comparison.sources:
        console.print(source_line(source, note))
    for line in comparison.remarks:
        console.print(line, style="yellow")
    if (floor := floor_line(comparison)) is not None:
        console.print(floor)
    pairs = comparison.pairs
    if pairs.pairs:
        console.print_table(pairs_table(pairs.first, pairs_heading(comparison)).in_terminal())
        console.print_table(pairs_table(pairs.of_seeds, "the same, seed by seed").in_terminal())
        console.print(pairs_note(comparison))
        scores = score_pairs_table(pairs.first)
        console.print_table(scores.in_terminal())
        if scores.rows:
            console.print(SCORE_PAIRS_NOTE)
    for unpaired in pairs.unpaired:
        console.print(unpaired_line(unpaired), style="yellow")
    console.print_table(cost_table(comparison).in_terminal())
    overhead = overhead_table(comparison)
    console.print_table(overhead.in_terminal())
    if overhead.rows:
        console.print(OVERHEAD_NOTE)
    console.print(f"Comparison: {display(page)} (each run's own page is report.html in its folder)", soft_wrap=True)


def _print_main_table(title: str, comparison: Comparison, rows: Sequence[Row], console: "Terminal") -> None:
    """Print one table; where it is too wide, only what has no table of its own."""
    whole = main_table(comparison, rows, comparison.strata, comparison.common_scores, title).in_terminal()
    # where nothing but a file's reader limits a line, no line is too long
    if not console.is_terminal or console.measure_table(whole).maximum <= console.width:
        console.print_table(whole)
        return
    console.print_table(main_table(comparison, rows, [], [], title, with_cost=False).in_terminal())
    if comparison.strata:
        console.print_table(strata_table(comparison, rows, with_intervals=False).in_terminal())

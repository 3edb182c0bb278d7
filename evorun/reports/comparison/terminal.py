"""A comparison in the terminal: scores and cost, the pairs, and where the page is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.grids import (
    Grid,
    cost_grid,
    main_grid,
    pairs_grid,
    reported_steps_grid,
    reported_strata_grid,
    score_pairs_grid,
    scores_grid,
    search_grid,
    strata_grid,
)
from evorun.reports.comparison.notes import (
    SCORE_PAIRS_NOTE,
    few_seeds_lines,
    floor_line,
    pairs_heading,
    pairs_note,
    primary_words,
    seeds_note,
    shared_line,
    source_line,
    unpaired_line,
)
from evorun.reports.comparison.refinement import NOTE as OVERHEAD_NOTE
from evorun.reports.comparison.refinement import overhead_grid
from evorun.reports.comparison.rows import Row
from evorun.reports.tables import new_table
from evorun.runs.paths import display

if TYPE_CHECKING:
    from rich.table import Table

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
    for title, grid in (
        ("scores", scores_grid(comparison.rows)),
        ("search and judge", search_grid(comparison.rows, comparison.step)),
        ("reported by stratum", reported_strata_grid(comparison)),
        ("reported by training step", reported_steps_grid(comparison)),
    ):
        console.print_table(grid_table(title, grid))
    for source, note in comparison.sources:
        console.print(source_line(source, note))
    for line in comparison.remarks:
        console.print(line, style="yellow")
    if (floor := floor_line(comparison)) is not None:
        console.print(floor)
    pairs = comparison.pairs
    if pairs.pairs:
        console.print_table(grid_table(pairs_heading(comparison), pairs_grid(pairs.first)))
        console.print_table(grid_table("the same, seed by seed", pairs_grid(pairs.of_seeds)))
        console.print(pairs_note(comparison))
        scores = score_pairs_grid(pairs.first)
        console.print_table(grid_table("their scores", scores))
        if scores.rows:
            console.print(SCORE_PAIRS_NOTE)
    for unpaired in pairs.unpaired:
        console.print(unpaired_line(unpaired), style="yellow")
    console.print_table(grid_table("cost per problem, by role", cost_grid(comparison)))
    overhead = overhead_grid(comparison)
    console.print_table(grid_table("cost of refinement", overhead))
    if overhead.rows:
        console.print(OVERHEAD_NOTE)
    console.print(f"Comparison: {display(page)} (each run's own page is report.html in its folder)", soft_wrap=True)


def _print_main_table(title: str, comparison: Comparison, rows: Sequence[Row], console: "Terminal") -> None:
    """Print one table; where it is too wide, only what has no table of its own."""
    whole = grid_table(title, main_grid(comparison, rows, comparison.strata, comparison.common_scores))
    # where nothing but a file's reader limits a line, no line is too long
    if not console.is_terminal or console.measure_table(whole).maximum <= console.width:
        console.print_table(whole)
        return
    console.print_table(grid_table(title, main_grid(comparison, rows, [], [], with_cost=False)))
    if comparison.strata:
        by_stratum = strata_grid(comparison, rows, with_intervals=False)
        console.print_table(grid_table(f"{primary_words(comparison)} by stratum", by_stratum))


def grid_table(title: str, grid: Grid) -> "Table":
    """Return the grid as a table."""
    table = new_table(title, *grid.columns, left=grid.words)
    for row in grid.rows:
        table.add_row(*row)
    return table

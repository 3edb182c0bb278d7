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
    reported_strata_grid,
    score_pairs_grid,
    scores_grid,
    search_grid,
    strata_grid,
)
from evorun.reports.comparison.notes import (
    SCORE_PAIRS_NOTE,
    SEEDS_NOTE,
    floor_line,
    pairs_heading,
    pairs_note,
    primary_words,
    shared_line,
    source_line,
    unpaired_line,
)
from evorun.reports.comparison.refinement import NOTE as OVERHEAD_NOTE
from evorun.reports.comparison.refinement import overhead_grid
from evorun.reports.comparison.rows import Row
from evorun.reports.tables import add_row, new_table
from evorun.runs.paths import display

if TYPE_CHECKING:
    from rich.measure import Measurement
    from rich.table import Table

    from evorun.runs.terminal import Terminal

_WIDE = 10_000
"""Characters: no table is wider."""
_LONGEST_WORD = 40


def print_comparison(comparison: Comparison, page: Path, console: "Terminal") -> None:
    """Print the tables of a comparison whose page has been written."""
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style))

    for line in comparison.warnings:
        say(line, "bold yellow")
    _print_main_table(shared_line(comparison), comparison, comparison.rows, console)
    if comparison.has_seeds:
        _print_main_table("single runs", comparison, comparison.run_rows, console)
        say(SEEDS_NOTE)
    for title, grid in (
        ("scores", scores_grid(comparison.rows)),
        ("search and judge", search_grid(comparison.rows)),
        ("reported by stratum", reported_strata_grid(comparison)),
    ):
        print_uncut(grid_table(title, grid), console)
    for source, note in comparison.sources:
        say(source_line(source, note))
    for line in comparison.remarks:
        say(line, "yellow")
    if (floor := floor_line(comparison)) is not None:
        say(floor)
    pairs = comparison.pairs
    if pairs.pairs:
        print_uncut(grid_table(pairs_heading(comparison), pairs_grid(pairs.first)), console)
        print_uncut(grid_table("the same, seed by seed", pairs_grid(pairs.of_seeds)), console)
        say(pairs_note(comparison))
        scores = score_pairs_grid(pairs.first)
        print_uncut(grid_table("their scores", scores), console)
        if scores.rows:
            say(SCORE_PAIRS_NOTE)
    for unpaired in pairs.unpaired:
        say(unpaired_line(unpaired), "yellow")
    print_uncut(grid_table("cost of a problem, by role", cost_grid(comparison)), console)
    overhead = overhead_grid(comparison)
    print_uncut(grid_table("cost of refinement", overhead), console)
    if overhead.rows:
        say(OVERHEAD_NOTE)
    console.print(
        Text(f"Comparison: {display(page)} (each run's own page is report.html in its folder)"), soft_wrap=True
    )


def _print_main_table(title: str, comparison: Comparison, rows: Sequence[Row], console: "Terminal") -> None:
    """Print one table; where it is too wide, only what has no table of its own."""
    whole = grid_table(title, main_grid(comparison, rows, comparison.strata, comparison.common_scores))
    # where nothing but a file's reader limits a line, no line is too long
    if not console.is_terminal or _measure(whole, console).maximum <= console.width:
        print_uncut(whole, console)
        return
    print_uncut(grid_table(title, main_grid(comparison, rows, [], [], with_cost=False)), console)
    if comparison.strata:
        by_stratum = strata_grid(comparison, rows, with_intervals=False)
        print_uncut(grid_table(f"{primary_words(comparison)} by stratum", by_stratum), console)


def grid_table(title: str, grid: Grid) -> "Table":
    """Return the grid as a table in which only words wrap, and only between them."""
    # a minimum width for each column, as Rich would break a figure in two before it lets a table be too wide
    table = new_table(title, *grid.columns, left=grid.words)
    for row in grid.rows:
        add_row(table, *row)
    for index, column in enumerate(table.columns):
        cells = [row[index] for row in grid.rows]
        parts = [part for cell in cells for part in (cell.split() if index in grid.words else [cell])]
        parts += grid.columns[index].split("\n")
        column.min_width = min(max(map(len, parts)), _LONGEST_WORD)
    return table


def print_uncut(table: "Table", console: "Terminal") -> None:
    """Print a table, unless it has no rows: over the edge of the terminal rather than without a figure's end."""
    if not table.rows:
        return
    measured = _measure(table, console)
    widest = console.width if console.is_terminal else measured.maximum
    table.width = min(measured.maximum, max(widest, measured.minimum))
    console.print(table, crop=False, no_wrap=True, overflow="ignore")


def _measure(table: "Table", console: "Terminal") -> "Measurement":
    return console.measure(table, options=console.options.update(width=_WIDE))

"""A comparison in the terminal: scores and cost, the pairs, and where the page is."""

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
    strata_grid,
)
from evorun.reports.comparison.notes import (
    SCORE_PAIRS_NOTE,
    pairs_heading,
    pairs_note,
    primary_words,
    shared_line,
    source_line,
    unpaired_line,
)
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
    _print_main_table(comparison, console)
    if comparison.other_scores:
        _print_uncut(_table("scores", scores_grid(comparison)), console)
    reported = reported_strata_grid(comparison)
    if reported.rows:
        _print_uncut(_table("reported by stratum", reported), console)
    for source, note in comparison.sources:
        say(source_line(source, note))
    for line in comparison.remarks:
        say(line, "yellow")
    if comparison.pairs.pairs:
        _print_uncut(_table(pairs_heading(comparison), pairs_grid(comparison)), console)
        say(pairs_note(comparison))
        scores = score_pairs_grid(comparison)
        if scores.rows:
            _print_uncut(_table("their scores", scores), console)
            say(SCORE_PAIRS_NOTE)
    for unpaired in comparison.pairs.unpaired:
        say(unpaired_line(unpaired), "yellow")
    costs = cost_grid(comparison)
    if costs.rows:
        _print_uncut(_table("cost of a problem, by role", costs), console)
    console.print(
        Text(f"Comparison: {display(page)} (each run's own page is report.html in its folder)"), soft_wrap=True
    )


def _print_main_table(comparison: Comparison, console: "Terminal") -> None:
    """Print one table; where it is too wide, only what has no table of its own."""
    title = shared_line(comparison)
    runs = len(comparison.rows)
    whole = _table(title, main_grid(comparison, comparison.strata, comparison.other_scores), section=runs)
    # where nothing but a file's reader limits a line, no line is too long
    if not console.is_terminal or _measure(whole, console).maximum <= console.width:
        _print_uncut(whole, console)
        return
    _print_uncut(_table(title, main_grid(comparison, [], [], with_cost=False), section=runs), console)
    if comparison.strata:
        by_stratum = strata_grid(comparison, with_intervals=False)
        _print_uncut(_table(f"{primary_words(comparison)} by stratum", by_stratum), console)


def _table(title: str, grid: Grid, section: int | None = None) -> "Table":
    """Return the grid as a table, with a rule before row `section`; only words wrap, and only between them."""
    # a minimum width for each column, as Rich would break a figure in two before it lets a table be too wide
    table = new_table(title, *grid.columns, left=grid.words)
    for index, row in enumerate(grid.rows):
        if index == section:
            table.add_section()
        add_row(table, *row)
    for index, column in enumerate(table.columns):
        cells = [row[index] for row in grid.rows]
        parts = [part for cell in cells for part in (cell.split() if index in grid.words else [cell])]
        parts += grid.columns[index].split("\n")
        column.min_width = min(max(map(len, parts)), _LONGEST_WORD)
    return table


def _print_uncut(table: "Table", console: "Terminal") -> None:
    """Print a table, over the edge of the terminal rather than without a figure's end."""
    measured = _measure(table, console)
    widest = console.width if console.is_terminal else measured.maximum
    table.width = min(measured.maximum, max(widest, measured.minimum))
    console.print(table, crop=False, no_wrap=True, overflow="ignore")


def _measure(table: "Table", console: "Terminal") -> "Measurement":
    return console.measure(table, options=console.options.update(width=_WIDE))

"""A comparison in the terminal, on a page that opens from disk and loads nothing, and as exported files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evorun.reports.comparison import plots
from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.evolution import OVERHEAD_NOTE, evolved_texts, overhead_table
from evorun.reports.comparison.figures import make_figures
from evorun.reports.comparison.notes import (
    SCORE_PAIRS_NOTE,
    cost_note,
    few_seeds_lines,
    floor_line,
    intervals_note,
    lines_note,
    pairs_heading,
    pairs_note,
    primary_words,
    search_note,
    seeds_note,
    shared_line,
    source_line,
    unpaired_line,
)
from evorun.reports.comparison.rows import Row
from evorun.reports.comparison.tables import (
    cost_table,
    data_tables,
    main_table,
    pairs_table,
    reported_steps_table,
    reported_strata_table,
    run_cost_table,
    score_pairs_table,
    scores_table,
    search_table,
    strata_table,
)
from evorun.reports.html import REPORT
from evorun.reports.page import export, markup, own_file, render, write_page
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


COMPARISON = "comparison.html"

_MAX_STRATA = 4
"""Strata that have a column in the first table; all of them have their own table."""


def comparison_folder(run_dirs: Sequence[Path]) -> Path:
    """Return the deepest folder that holds all the runs; the current one where that cannot be written."""
    common = Path(os.path.commonpath([run_dir.resolve().parent for run_dir in run_dirs]))
    # never into the root of the file system, even where it could be written (in a container it often can)
    fits = common != Path(common.anchor) and os.access(common, os.W_OK | os.X_OK)
    return common if fits else Path.cwd()


def write_comparison(comparison: Comparison, target: Path) -> Path:
    """Write the page of a comparison, replacing an earlier one in one step, and return its path.

    Raises RunDirectoryError when it cannot be written.
    """
    return write_page(target, render("comparison/comparison.html.j2", _context(comparison, target.parent)))


def export_comparison(comparison: Comparison, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the figures (SVG, PDF) and the tables (CSV) of a comparison into a folder, and return their paths.

    Raises as `export`.
    """
    return export(folder, make_figures(comparison), data_tables(comparison), overwrite=overwrite)


def _context(comparison: Comparison, folder: Path) -> dict[str, Any]:
    strata = comparison.strata if len(comparison.strata) <= _MAX_STRATA else []
    pairs, styles = comparison.pairs, plots.assign_styles(comparison)
    # "./": a folder may be called `javascript:...`, and a link to it must not become one with that scheme
    links = {
        run.name: "./" + quote(os.path.relpath(run.outcome.run_dir.resolve() / REPORT, folder.resolve()))
        for run in comparison.runs
    }
    by_legend = {arm.legend: styles[arm.name] for arm in comparison.arms}
    legend = {name: markup(plots.swatch(style)) for name, style in by_legend.items()}
    return {
        "comparison": comparison,
        "shared": shared_line(comparison),
        "main": main_table(comparison, comparison.rows, strata, comparison.common_scores),
        "scores": scores_table(comparison.rows),
        "search": search_table(comparison.rows, comparison.step),
        "strata": strata_table(comparison, comparison.rows, with_intervals=True),
        "reported_strata": reported_strata_table(comparison),
        "reported_steps": reported_steps_table(comparison),
        "pairs": pairs_table(pairs.first),
        "pairs_heading": pairs_heading(comparison),
        "pairs_note": pairs_note(comparison),
        "score_pairs": score_pairs_table(pairs.first),
        "score_pairs_note": SCORE_PAIRS_NOTE,
        "unpaired": [unpaired_line(unpaired) for unpaired in pairs.unpaired],
        "cost": cost_table(comparison),
        "overhead": overhead_table(comparison),
        "run_cost": run_cost_table(comparison),
        "evolved": evolved_texts(comparison),
        "overhead_note": OVERHEAD_NOTE,
        "run_main": main_table(comparison, comparison.run_rows, strata, comparison.common_scores),
        "run_search": search_table(comparison.run_rows, comparison.step),
        "run_pairs": pairs_table(pairs.of_seeds),
        "tables": {table.name: table for table in data_tables(comparison)},
        "sources": [source_line(source, note) for source, note in comparison.sources],
        "links": links,
        "folders": {run.name: display(run.outcome.run_dir) for run in comparison.runs},
        "swatches": {
            name: legend[arm.legend] for arm in comparison.arms for name in (arm.name, *(run.name for run in arm.runs))
        },
        "primary": primary_words(comparison),
        "intervals_note": intervals_note(comparison),
        "few_seeds": few_seeds_lines(comparison),
        "search_note": search_note(comparison),
        "cost_note": cost_note(comparison),
        "floor_line": floor_line(comparison),
        "lines_note": lines_note(comparison),
        "figures": make_figures(comparison),
        "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
    }

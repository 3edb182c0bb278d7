"""A comparison in the terminal, on a page that opens from disk and loads nothing, and as exported files."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evorun.errors import ConfigError, RunDirectoryError
from evorun.reports.comparison import level_notes, notes, plots, search_notes, tables
from evorun.reports.comparison.comparison import ComparedRuns
from evorun.reports.comparison.evolution import collect_evolved_texts, describe_overhead, make_overhead_table
from evorun.reports.comparison.figures import make_figures
from evorun.reports.comparison.findings import describe_changes, describe_finding
from evorun.reports.comparison.rows import Row
from evorun.reports.drawing import drawings_of_width
from evorun.reports.facts import is_remark
from evorun.reports.page import export, markup, own_file, render, write_page
from evorun.reports.tables import Column, Table, make_data_table, show_words, word_columns
from evorun.runs.directory import REPORT
from evorun.runs.paths import display

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal

COMPARISON = "comparison.html"

_LINK = re.compile(r'href="(\./[^"]+)"')
"""A page's link to the page of a run; what runs say has no such quotes, since it is escaped."""

_MAX_STRATA = 4
"""Maximum strata with a column in the first table; they always have their own table."""

_MAX_RUNS = 12
"""Maximum single runs that a terminal lists beside their means (ours)."""


def print_comparison(comparison: ComparedRuns, page: Path, console: "Terminal") -> None:
    """Print the tables of a comparison whose page has been written."""
    for line in comparison.warnings:
        console.print(line, style=None if is_remark(line) else "bold yellow")
    for line in comparison.study.lines if comparison.study else ():
        console.print(line)
    _print_main_table(notes.shared_line(comparison), comparison, comparison.rows, console)
    if (place := notes.describe_place_of_reported(comparison)) is not None:
        console.print(place)
    if (gold := notes.describe_gold_score(comparison)) is not None:
        console.print(gold)
    if comparison.has_seeds:
        for line in notes.seeds_notes(comparison):
            console.print(line)
    for line in notes.list_cautions(comparison):
        console.print(line, style="yellow")
    pairs, explained = comparison.pairs, list[str]()
    if pairs.pairs:
        console.print_table(tables.make_pairs_table(pairs.main_pairs, notes.pairs_heading(comparison)).to_rich())
        answers = comparison.study.answers if comparison.study else ()
        for finding in map(describe_finding, pairs.main_pairs):
            if not any(answer.startswith(finding) for answer in answers):  # which stand above
                console.print(finding)
        if (place := notes.describe_place_of_strata_pairs(comparison)) is not None:
            console.print(place)
        explained = notes.pairs_notes(comparison)
        scores = tables.make_score_pairs_table(pairs.main_pairs, comparison.omitted_scores)
        console.print_table(scores.to_rich())
        explained += [notes.SCORE_PAIRS_NOTE] if scores.rows else []
    for line in notes.unpaired_lines(comparison):
        console.print(line, style="yellow")
    if comparison.level_pairs:
        heading = level_notes.levels_heading(comparison)
        console.print_table(tables.make_level_pairs_table(comparison.level_pairs, heading).to_rich())
        for line in [*describe_changes(comparison.level_pairs), *level_notes.levels_notes(comparison)]:
            console.print(line)
    console.print_table(tables.make_scores_table(comparison.rows, comparison.omitted_scores).to_rich())
    search = tables.make_search_table(comparison.rows, comparison.step)
    console.print_table(search.to_rich())
    if search.rows and (explanation := search_notes.search_note(comparison)):
        console.print(explanation)
    for table in (
        tables.make_reported_strata_table(comparison),
        tables.make_reported_steps_table(comparison),
    ):
        console.print_table(table.to_rich())
    for source, note in comparison.sources:
        console.print(notes.source_line(source, note))
    for line in comparison.remarks:
        console.print(line, style="yellow")
    if (missing := notes.describe_missing_baselines(comparison)) is not None:
        console.print(missing)
    console.print_table(tables.make_cost_table(comparison).to_rich())
    console.print(notes.cost_note(comparison))
    overhead = make_overhead_table(comparison)
    console.print_table(overhead.to_rich())
    if overhead.rows:
        console.print(describe_overhead(comparison))
    _print_single_runs(comparison, console)
    if explained:
        heading = notes.pairs_heading(comparison)
        about = (
            "between" + heading.removeprefix("Between")
            if comparison.every_two
            else heading.replace("Against", "from", 1)
        )
        console.print(f"\nOn the differences {about}:")
    for line in explained:
        console.print(f"- {line}")
    console.print(f"Comparison: {display(page)} (each run's own page is report.html in its folder)", soft_wrap=True)


def _print_single_runs(comparison: ComparedRuns, console: "Terminal") -> None:
    """Print the runs of several seeds one by one, and their pairs; of more than fit on a screen only where they are."""
    if not comparison.has_seeds:
        return
    if (number := len(comparison.runs)) > _MAX_RUNS:
        console.print(f"Single runs ({number:,}): on the page below, and as tables with --export=FOLDER.")
        return
    _print_main_table("single runs", comparison, comparison.run_rows, console)
    console.print_table(tables.make_pairs_table(comparison.pairs.seed_pairs, "pairs seed by seed").to_rich())


def _print_main_table(title: str, comparison: ComparedRuns, rows: Sequence[Row], console: "Terminal") -> None:
    """Print one table; if it is too wide, only the columns that have no other table."""
    whole = tables.make_main_table(comparison, rows, comparison.strata, comparison.common_scores, title).to_rich()
    if not console.limits_tables or console.measure_table(whole).maximum <= console.width:
        console.print_table(whole)
        return
    console.print_table(tables.make_main_table(comparison, rows, [], [], title, with_cost=False).to_rich())
    if comparison.strata:
        console.print_table(tables.make_strata_table(comparison, rows, with_intervals=False).to_rich())


def choose_folder(run_dirs: Sequence[Path]) -> Path:
    """Return the deepest folder that holds all the runs; the current one if that cannot be written."""
    common = Path(os.path.commonpath([run_dir.resolve().parent for run_dir in run_dirs]))
    # never into the root of the file system, even where it could be written (in a container it often can)
    fits = common != Path(common.anchor) and os.access(common, os.W_OK | os.X_OK)
    return common if fits else Path.cwd()


def refuse_losing_runs(page: Path, run_dirs: Sequence[Path]) -> None:
    """Raise ConfigError for a file that is no comparison of these runs or some of them: to replace it would lose it.

    Raises RunDirectoryError when it cannot be read.
    """
    if not page.is_file():
        return
    try:
        compared = set(_LINK.findall(page.read_text("utf-8", "replace")))
    except OSError as error:
        raise RunDirectoryError(f"cannot read {display(page)}: {error.strerror}") from error
    folder = page.parent.resolve()
    lost = compared - {_link_to(run_dir, folder) for run_dir in run_dirs}
    if compared and not lost:
        return
    runs = "run" if len(lost) == 1 else "runs"
    found = f"compares {len(lost):,} {runs} that this report leaves out" if lost else "is no comparison of runs"
    raise ConfigError(
        f"{display(page)} {found}; --output=FILE.html writes this report elsewhere, --overwrite replaces that file"
    )


def _link_to(run_dir: Path, folder: Path) -> str:
    """Return the link from a page in a folder to a run's own page."""
    # "./": a folder may be called `javascript:...`, and a link to it must not become one with that scheme
    return "./" + quote(os.path.relpath(run_dir.resolve() / REPORT, folder))


def write_comparison(comparison: ComparedRuns, target: Path) -> Path:
    """Write the page of a comparison, atomically replacing an earlier one, and return its path.

    Raises RunDirectoryError when it cannot be written.
    """
    folder = target.parent.resolve()
    links = {run.name: _link_to(run.outcome.run_dir, folder) for run in comparison.runs}
    return write_page(target, render_comparison(comparison, links))


def render_comparison(comparison: ComparedRuns, links: Mapping[str, str]) -> str:
    """Return the HTML of a comparison. links: from the page to each run's own, by the run's name."""
    return render("comparison/comparison.html.j2", _make_context(comparison, links))


def export_comparison(
    comparison: ComparedRuns, folder: Path, *, width: float | None = None, overwrite: bool = False
) -> list[Path]:
    """Write the figures (SVG, PDF, PNG) and the tables (CSV) of a comparison into a folder, and return their paths.

    points.csv has the points of all lines. width: of the figures, in inches; None: their natural one. Raises as
    `export` and `drawings_of_width`.
    """
    with drawings_of_width(width):
        figures = list(make_figures(comparison))
    points = make_data_table("points", plots.POINT_COLUMNS, [point for drawn in figures for point in drawn.points])
    filled = [table for table in (*tables.make_data_tables(comparison), points) if table.rows]
    return export(folder, figures, filled, overwrite=overwrite)


def _make_context(comparison: ComparedRuns, links: Mapping[str, str]) -> dict[str, Any]:
    strata = comparison.strata if len(comparison.strata) <= _MAX_STRATA else []
    pairs, styles = comparison.pairs, plots.assign_styles(comparison)
    by_legend = {arm.legend: styles[arm.name] for arm in comparison.arms}
    legend = {name: markup(plots.draw_swatch(style)) for name, style in by_legend.items()}
    return {
        "title": f"Comparison of {len(comparison.runs)} runs",
        "script_hash": None,
        "comparison": comparison,
        "shared": notes.shared_line(comparison),
        "main": tables.make_main_table(comparison, comparison.rows, strata, comparison.common_scores),
        "scores": tables.make_scores_table(comparison.rows, comparison.omitted_scores),
        "search": tables.make_search_table(comparison.rows, comparison.step),
        "strata": tables.make_strata_table(comparison, comparison.rows, with_intervals=True),
        "strata_note": notes.strata_note(comparison),
        "strata_pairs": tables.make_strata_pairs_table(comparison.strata_pairs),
        "strata_pairs_note": notes.strata_pairs_note(comparison),
        "reported_strata": tables.make_reported_strata_table(comparison),
        "reported_steps": tables.make_reported_steps_table(comparison),
        "pairs": tables.make_pairs_table(pairs.main_pairs),
        "pairs_heading": notes.pairs_heading(comparison),
        "findings": [describe_finding(pair) for pair in pairs.main_pairs],
        "pairs_notes": notes.pairs_notes(comparison),
        "score_pairs": tables.make_score_pairs_table(pairs.main_pairs, comparison.omitted_scores),
        "score_pairs_note": notes.SCORE_PAIRS_NOTE,
        "level_pairs": tables.make_level_pairs_table(comparison.level_pairs),
        "levels_heading": level_notes.levels_heading(comparison) if comparison.level_pairs else "",
        "changes": describe_changes(comparison.level_pairs),
        "levels_notes": level_notes.levels_notes(comparison),
        "unpaired": notes.unpaired_lines(comparison),
        "cost": tables.make_cost_table(comparison),
        "overhead": make_overhead_table(comparison),
        "run_cost": tables.make_run_cost_table(comparison),
        "run_cost_note": notes.run_cost_note(comparison),
        "evolved": collect_evolved_texts(comparison),
        "overhead_note": describe_overhead(comparison),
        "run_main": tables.make_main_table(comparison, comparison.run_rows, strata, comparison.common_scores),
        "run_search": tables.make_search_table(comparison.run_rows, comparison.step),
        "run_pairs": tables.make_pairs_table(pairs.seed_pairs),
        "runs": _make_runs_table(comparison),
        "tables": {table.name: table for table in tables.make_data_tables(comparison)},
        "sources": [notes.source_line(source, note) for source, note in comparison.sources],
        "differs_from_reported": tables.can_differ(comparison.rows),
        "links": links,
        "legend": legend,
        "swatches": {
            name: legend[arm.legend] for arm in comparison.arms for name in (arm.name, *(run.name for run in arm.runs))
        },
        "primary": notes.primary_words(comparison),
        "place_of_reported": notes.describe_place_of_reported(comparison),
        "gold_score": notes.describe_gold_score(comparison),
        "intervals_note": notes.intervals_note(comparison),
        "cautions": notes.list_cautions(comparison),
        "search_note": search_notes.search_note(comparison),
        "cost_note": notes.cost_note(comparison),
        "missing_baselines": notes.describe_missing_baselines(comparison),
        "figures": make_figures(comparison),
        "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
    }


def _make_runs_table(comparison: ComparedRuns) -> Table:
    """Return status, start, folder and data of each run."""
    return Table(
        [
            *word_columns("run", "status"),
            Column("started", show_words, "code"),
            *word_columns("folder"),
            Column("data digest", show_words, "code"),
        ],
        [
            (
                run.name,
                run.manifest.status,
                run.manifest.started,
                display(run.outcome.run_dir),
                run.manifest.provenance.digest[:12],
            )
            for run in comparison.runs
        ],
    )

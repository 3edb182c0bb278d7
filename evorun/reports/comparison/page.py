"""comparison.html: several runs on one page that opens from disk and loads nothing."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evorun.reports import text
from evorun.reports.comparison import plots
from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.grids import (
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
    intervals_note,
    pairs_heading,
    pairs_note,
    primary_words,
    shared_line,
    source_line,
    unpaired_line,
)
from evorun.reports.drawing import X_LABELS, XAxis
from evorun.reports.html import REPORT
from evorun.reports.page import markup, own_file, render, write_page
from evorun.runs.paths import display
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from markupsafe import Markup

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


def _context(comparison: Comparison, folder: Path) -> dict[str, Any]:
    strata = comparison.strata
    second = [comparison.second] if comparison.second else []
    drawn = comparison.runs[: plots.MAX_LINES]
    # "./": a folder may be called `javascript:...`, and a link to it must not become one with that scheme
    links = {
        run.name: "./" + quote(os.path.relpath(run.outcome.run_dir.resolve() / REPORT, folder.resolve()))
        for run in comparison.runs
    }
    return {
        "comparison": comparison,
        "shared": shared_line(comparison),
        "main": main_grid(comparison, strata if len(strata) <= _MAX_STRATA else [], comparison.other_scores),
        "scores": scores_grid(comparison),
        "strata": strata_grid(comparison, with_intervals=True),
        "reported_strata": reported_strata_grid(comparison),
        "pairs": pairs_grid(comparison),
        "pairs_heading": pairs_heading(comparison),
        "pairs_note": pairs_note(comparison),
        "score_pairs": score_pairs_grid(comparison),
        "score_pairs_note": SCORE_PAIRS_NOTE,
        "unpaired": [unpaired_line(unpaired) for unpaired in comparison.pairs.unpaired],
        "cost": cost_grid(comparison),
        "sources": [source_line(source, note) for source, note in comparison.sources],
        "links": links,
        "folders": {run.name: display(run.outcome.run_dir) for run in comparison.runs},
        "swatches": {run.name: markup(plots.swatch(index)) for index, run in enumerate(drawn)},
        "primary": primary_words(comparison),
        "intervals_note": intervals_note(comparison),
        "bars": _bars(comparison, comparison.primaries),
        "second_bars": _bars(comparison, second),
        "along": _curves(comparison, comparison.primaries, X_LABELS),
        "others_along": {
            **_curves(comparison, comparison.drawn_scores, ["step"]),
            **_curves(comparison, [score for score in comparison.drawn_scores if score in second], X_LABELS),
        },
        "with_bands": sum(bool(run.curves.get(run.primary.name)) for run in drawn) <= plots.MAX_BANDS,
        "left_out": max(len(comparison.runs) - plots.MAX_LINES, 0),
        "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
    }


def _bars(comparison: Comparison, scores: Iterable[Score]) -> Mapping[str, "Markup"]:
    """Draw the final figures, by the score's name in words."""
    drawn = {text.words(score.name): plots.bars_plot(comparison.rows, score) for score in scores}
    return {name: markup(svg) for name, svg in drawn.items() if svg}


def _curves(
    comparison: Comparison, scores: Iterable[Score], against: Iterable[XAxis]
) -> Mapping[str, Mapping[str, "Markup"]]:
    """Draw scores along the runs, by their names in words and by horizontal axis."""
    drawn: dict[str, dict[str, Markup]] = {}
    for score in scores:
        for x in against:
            if (svg := plots.curves_plot(comparison.runs, score, x)) is not None:
                drawn.setdefault(text.words(score.name), {})[x] = markup(svg)
    return drawn

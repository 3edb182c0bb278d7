"""comparison.html: several runs on one page that opens from disk and loads nothing."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evorun.reports import text
from evorun.reports.comparison import plots
from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.grids import (
    SCORE_PAIRS_NOTE,
    cost_grid,
    main_grid,
    pairs_grid,
    pairs_heading,
    pairs_note,
    reported_strata_grid,
    score_pairs_grid,
    scores_grid,
    shared_line,
    source_line,
    strata_grid,
    unpaired_line,
)
from evorun.reports.drawing import X_LABELS
from evorun.reports.html import REPORT
from evorun.reports.page import markup, own_file, render, write_page
from evorun.runs.paths import display
from evorun.runs.results import ACCURACY, MAIN_SCORE

if TYPE_CHECKING:
    from markupsafe import Markup

COMPARISON = "comparison.html"

_MAX_STRATA = 4
"""Strata that have a column in the first table; all of them have their own table."""


def write_comparison(comparison: Comparison, target: Path) -> Path:
    """Write the page of a comparison, replacing an earlier one in one step, and return its path.

    Raises RunDirectoryError when it cannot be written.
    """
    return write_page(target, render("comparison/comparison.html.j2", _context(comparison, target.parent)))


def _context(comparison: Comparison, folder: Path) -> dict[str, Any]:
    strata = comparison.strata
    return {
        "comparison": comparison,
        "shared": shared_line(comparison),
        "main": main_grid(comparison, strata if len(strata) <= _MAX_STRATA else [], comparison.scores),
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
        "links": {run.name: _link(run.outcome.run_dir, folder) for run in comparison.runs},
        "folders": {run.name: display(run.outcome.run_dir) for run in comparison.runs},
        "swatches": _swatches(comparison),
        "plots": _plots(comparison),
        "score_plots": _score_plots(comparison),
        "main_score": text.words(MAIN_SCORE),
        "with_bands": sum(bool(run.curves[ACCURACY]) for run in comparison.runs[: plots.MAX_LINES]) <= plots.MAX_BANDS,
        "left_out": max(len(comparison.runs) - plots.MAX_LINES, 0),
        "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
    }


def _link(run_dir: Path, folder: Path) -> str:
    """Return the address of a run's own report, relative to the page; never one with a scheme."""
    return "./" + quote(os.path.relpath(run_dir.resolve() / REPORT, folder.resolve()))


def _swatches(comparison: Comparison) -> dict[str, "Markup"]:
    drawn = comparison.runs[: plots.MAX_LINES]
    return {run.name: markup(plots.swatch(index)) for index, run in enumerate(drawn)}


def _plots(comparison: Comparison) -> Mapping[str, "Markup | None"]:
    drawn: dict[str, str | None] = {
        "bars": plots.bars_plot(comparison.rows, ACCURACY),
        "score_bars": plots.bars_plot(comparison.rows, MAIN_SCORE),
        **{x: plots.curves_plot(comparison.runs, ACCURACY, x) for x in X_LABELS},
    }
    return {name: markup(svg) if svg else None for name, svg in drawn.items()}


def _score_plots(comparison: Comparison) -> Mapping[str, Mapping[str, "Markup"]]:
    """Draw the scores that all runs have, by their names in words; only the main one against cost."""
    return {
        text.words(name): {
            x: markup(svg)
            for x in X_LABELS
            if (x == "step" or name == MAIN_SCORE) and (svg := plots.curves_plot(comparison.runs, name, x))
        }
        for name in comparison.drawn_scores
    }

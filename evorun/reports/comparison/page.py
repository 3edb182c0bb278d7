"""comparison.html: several runs on one page that opens from disk and loads nothing."""

import os
from collections.abc import Iterable, Mapping
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
from evorun.reports.comparison.runs import Run
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


def write_comparison(comparison: Comparison, target: Path) -> Path:
    """Write the page of a comparison, replacing an earlier one in one step, and return its path.

    Raises RunDirectoryError when it cannot be written.
    """
    return write_page(target, render("comparison/comparison.html.j2", _context(comparison, target.parent)))


def _context(comparison: Comparison, folder: Path) -> dict[str, Any]:
    strata = comparison.strata
    second = [comparison.second] if comparison.second else []
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
        "links": {run.name: _link(run.outcome.run_dir, folder) for run in comparison.runs},
        "folders": {run.name: display(run.outcome.run_dir) for run in comparison.runs},
        "swatches": _swatches(comparison),
        "primary": primary_words(comparison),
        "intervals_note": intervals_note(comparison),
        "bars": _bars(comparison, comparison.primaries),
        "second_bars": _bars(comparison, second),
        "along": _curves(comparison, comparison.primaries, X_LABELS),
        "others_along": {
            **_curves(comparison, comparison.drawn_scores, ["step"]),
            **_curves(comparison, [score for score in comparison.drawn_scores if score in second], X_LABELS),
        },
        "with_bands": sum(_is_drawn(run) for run in comparison.runs[: plots.MAX_LINES]) <= plots.MAX_BANDS,
        "left_out": max(len(comparison.runs) - plots.MAX_LINES, 0),
        "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
    }


def _link(run_dir: Path, folder: Path) -> str:
    """Return the address of a run's own report, relative to the page; never one with a scheme."""
    return "./" + quote(os.path.relpath(run_dir.resolve() / REPORT, folder.resolve()))


def _swatches(comparison: Comparison) -> dict[str, "Markup"]:
    drawn = comparison.runs[: plots.MAX_LINES]
    return {run.name: markup(plots.swatch(index)) for index, run in enumerate(drawn)}


def _bars(comparison: Comparison, scores: Iterable[Score]) -> Mapping[str, "Markup"]:
    """Draw the final figures, by the score's name in words."""
    drawn = {text.words(score.name): plots.bars_plot(comparison.rows, score) for score in scores}
    return {name: markup(svg) for name, svg in drawn.items() if svg}


def _curves(
    comparison: Comparison, scores: Iterable[Score], against: Iterable[XAxis]
) -> Mapping[str, Mapping[str, "Markup"]]:
    """Draw scores along the runs, by their names in words and by what they are drawn against."""
    drawn: dict[str, dict[str, Markup]] = {}
    for score in scores:
        for x in against:
            if (svg := plots.curves_plot(comparison.runs, score, x)) is not None:
                drawn.setdefault(text.words(score.name), {})[x] = markup(svg)
    return drawn


def _is_drawn(run: Run) -> bool:
    return bool(run.curves.get(run.primary.name))

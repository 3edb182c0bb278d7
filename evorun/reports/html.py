"""report.html: one run on one page that opens from disk, loads nothing, and escapes hostile texts."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from evorun.reports import plots, text
from evorun.reports.axes import XAxes, choose_axes
from evorun.reports.browser import BrowserProblem, load_browser
from evorun.reports.drawing import Drawing, marked_drawings
from evorun.reports.evolution.section import load_sections
from evorun.reports.facts import list_facts, list_settings, list_tiles, list_warnings, mark_origins, name_origins
from evorun.reports.figures import (
    RATINGS,
    SEARCH,
    has_judge,
    make_figures_table,
    warn_of_indecision,
    word_judge,
)
from evorun.reports.generators import draw_generators
from evorun.reports.given_prompts import load_prompt_scores, make_prompts_data_table, make_prompts_table
from evorun.reports.island_grid import draw_grid
from evorun.reports.islands import draw_islands
from evorun.reports.method_figures import (
    collect_method_figures,
    is_of_few,
    make_method_data_table,
    make_method_table,
)
from evorun.reports.overview import Curves, Outcome, load_aggregates, load_curves, load_outcome
from evorun.reports.packing import script_json
from evorun.reports.page import content_hash, export, linked_drawings, markup, own_file, render, write_page
from evorun.reports.problem_tables import make_problem_table
from evorun.reports.rejudged import load_rejudgings
from evorun.reports.rubrics.section import find_drawn_figures, load_rubric_section
from evorun.reports.run_tables import (
    is_flat,
    make_curves_tables,
    make_data_tables,
    make_primary_table,
    make_scores_table,
    make_training_table,
    make_wasted_table,
)
from evorun.reports.tables import Table
from evorun.reports.training import describe_gradient_clipping, is_edit
from evorun.runs.aggregates import Aggregates
from evorun.runs.directory import LOCK, REPORT
from evorun.runs.reading import read_steps_without_texts
from evorun.runs.schema import StepRecord
from evorun.runs.scores import Score, primary_score

_NOT_SHOWN = (REPORT, LOCK, "evorun.log")


def write_report(run_dir: Path, problems: Sequence[str] | None = None) -> Path:
    """Write `run_dir`/report.html, atomically replacing an earlier one, and return its path.

    The browser of candidates holds the named problems, or a spread of them. Raises RunDirectoryError for a folder
    that is not a run's, cannot be written or lacks a named problem, and DataError for a malformed record.
    """
    return write_page(run_dir / REPORT, render_report(run_dir, problems))


def is_up_to_date(run_dir: Path) -> bool:
    """Tell whether this user has drawn report.html, by this evorun, after all else in the folder was written."""
    page = run_dir / REPORT
    if not page.is_file() or page.stat().st_uid != os.geteuid() or page.stat().st_mtime_ns < _installed():
        return False
    others = (file for file in run_dir.rglob("*") if file.is_file() and file.name not in _NOT_SHOWN)
    return all(file.stat().st_mtime_ns <= page.stat().st_mtime_ns for file in others)


@cache
def _installed() -> int:
    """Return when the newest file that draws pages was written, in nanoseconds of the epoch."""
    files = (file for file in Path(__file__).parent.rglob("*") if file.suffix in (".py", ".j2", ".css", ".js"))
    return max(file.stat().st_mtime_ns for file in files)


class Report(NamedTuple):
    """A run's page, and the figures and tables that it shows."""

    page: str
    """As HTML."""
    drawings: Sequence[Drawing]
    """With their captions, which the page's template writes."""
    tables: Sequence[Table]
    problems: Sequence[Table]
    """The candidates of each named problem, for a terminal; the page shows all of them."""

    def export(self, folder: Path, *, overwrite: bool = False) -> list[Path]:
        """Write the figures as SVG, PDF and PNG and the tables as CSV into a folder, and return the files.

        Raises as `export` of `page.py`.
        """
        return export(folder, self.drawings, self.tables, overwrite=overwrite)


def make_report(run_dir: Path, problems: Sequence[str] | None = None) -> Report:
    """Draw the report of a run, always anew: a page that lies in the folder may be anybody's.

    Raises as `write_report`, but for writing.
    """
    context = _make_context(run_dir, problems)
    sections, rubrics = context["sections"], context["rubrics"]
    with linked_drawings() as captioned:
        page = render("run.html.j2", context)
    drawings = filter(None, (*context["plots"].values(), *sections.plots.values(), *rubrics.plots.values()))
    tables = (
        *context["tables"].values(),
        *sections.tables.values(),
        *rubrics.tables.values(),
        *(table for section in context["rejudged"] for table in section.tables),
    )
    return Report(
        page,
        [captioned.get(drawing.name, drawing) for drawing in drawings],
        [table for table in tables if table.rows],
        [
            make_problem_table(problem, primary_score(context["outcome"].manifest.scores), context["step"])
            for problem in (context["browser"] if problems else ())
        ],
    )


def render_report(run_dir: Path, problems: Sequence[str] | None = None) -> str:
    """Return the page's HTML; see `make_report`."""
    return make_report(run_dir, problems).page


def _make_context(run_dir: Path, problems: Sequence[str] | None) -> dict[str, Any]:
    outcome = load_outcome(run_dir)
    with marked_drawings(mark_origins(name_origins(outcome.manifest))):
        return _fill_context(outcome, run_dir, problems)


def _fill_context(outcome: Outcome, run_dir: Path, problems: Sequence[str] | None) -> dict[str, Any]:
    steps = read_steps_without_texts(run_dir)
    curves = load_curves(outcome, steps)
    measure = primary_score(outcome.manifest.scores)
    axes = choose_axes({outcome.step_name}, [p for points in curves.series.values() for p in points])
    step = axes["step"].label
    aggregates = load_aggregates(outcome, measure)
    browser = load_browser(run_dir, outcome.predictions, steps, aggregates.by_problem, measure, problems)
    # the index opens at once; a problem's own data is parsed when it is chosen
    shown = ("id", "stratum", "correct", "value", "candidates")
    index = [
        {**{name: getattr(problem, name) for name in shown}, "text_limit": problem.packed.limit} for problem in browser
    ]
    sections = load_sections(run_dir, measure, step, shared=aggregates.shared > 0)
    score = {"words": text.name_score(measure), "higher_is_better": measure.higher_is_better}
    words = {"score": None if measure.is_correctness else score, "step": step}
    scripts = ("dom.js", "diff.js", "browser.js", "evolution/evolution.js", "evolution/rollouts.js")
    script = "".join(map(own_file, scripts))
    plots_drawn = _draw_plots(outcome, curves, aggregates, axes)
    answered_by = outcome.manifest.answered_by
    method_figures = collect_method_figures(steps, {score.name for score in outcome.scores})
    prompt_scores = load_prompt_scores(outcome)
    method_data = make_method_data_table(method_figures)
    plots_drawn["method"] = plots.RunPlots(axes, curves.problems).method(method_figures)
    plots_drawn["islands"] = draw_islands(steps, answered_by)
    plots_drawn["grid"] = draw_grid(aggregates.placed, steps)
    plots_drawn["generators"] = draw_generators(aggregates.by_generator, outcome.cost, answered_by, measure)
    return {
        "title": f"{outcome.manifest.method} on {outcome.manifest.task}",
        "outcome": outcome,
        "warnings": list_warnings(outcome),
        "tiles": list_tiles(outcome, aggregates),
        "facts": list_facts(outcome.manifest),
        "tables": {
            **make_data_tables(outcome, curves, list_settings(outcome.manifest), axes),
            method_data.name: method_data,
            "prompts": make_prompts_data_table(outcome, prompt_scores),
        },
        "has_method_steps_of_few": any(
            is_of_few(point, curves.problems) for points in method_figures.values() for point in points
        ),
        "method_table": make_method_table(method_figures),
        "axes": axes,
        "step": step,
        "curves": curves,
        "curves_tables": make_curves_tables(curves, outcome.primary, axes),
        "primary": outcome.primary,
        "primary_table": make_primary_table(outcome),
        "prompts_table": make_prompts_table(outcome, prompt_scores),
        "scores_table": make_scores_table(outcome),
        "training_table": make_training_table(curves),
        "flat": [text.name_score(score) for score in _find_flat(curves)],
        "second": outcome.second,
        "right_or_wrong": measure.is_correctness,
        "strata_note": _describe_strata(outcome),
        "strata_left_out": max(len(curves.series) - 1 - plots.MAX_PANELS, 0),
        "wasted": make_wasted_table(outcome),
        "ratings_table": make_figures_table(outcome.metrics, RATINGS, "rank correlation", page=True),
        "search_table": make_figures_table(outcome.metrics, SEARCH, page=True),
        "search_note": _describe_search(outcome, steps),
        "judge_table": make_figures_table(outcome.metrics, word_judge(outcome.scores), page=True),
        "judge_warning": warn_of_indecision(outcome.metrics),
        "has_judge": has_judge(outcome.manifest),
        "gradient_clipping": describe_gradient_clipping(curves.training),
        "plots": plots_drawn,
        "sections": sections,
        "rubrics": load_rubric_section(outcome, curves),
        "rejudged": load_rejudgings(run_dir),
        "browser": browser,
        "browser_note": _describe_browser(browser, aggregates, measure),
        "browser_index": markup(script_json(index)),
        "browser_words": markup(script_json(words)),
        "style": markup(own_file("report.css") + own_file("evolution/evolution.css")),
        "script": markup(script),
        "script_hash": markup(content_hash(script)),
    }


def _describe_strata(outcome: Outcome) -> str:
    """Say what the intervals of the curves by stratum are over, and of how many problems and seeds they are."""
    sizes = sorted(Counter(prediction.stratum for prediction in outcome.predictions).values())
    each = ""
    if outcome.finished and sizes:  # otherwise they are of the problems that have begun
        span = text.count(sizes[0]) if sizes[0] == sizes[-1] else f"{text.count(sizes[0])} to {text.count(sizes[-1])}"
        each = f", {span} each"
    return f"With 95 % intervals over the problems of a stratum{each}; of one seed ({outcome.manifest.seed})"


def _describe_search(outcome: Outcome, steps: Sequence[StepRecord]) -> str:
    """Explain the figures of the search, and say what the search dropped."""
    sentences = []
    if "pool_coverage" in outcome.metrics:
        lost = (
            "A problem is lost if no right candidate was proposed, or none was chosen, or its text could not be parsed."
        )
        sentences.append(lost)
    pruned, capped = (int(sum(step.extra.get(name, 0) for step in steps)) for name in ("pruned", "capped"))
    if pruned or capped:
        dropped = f"{text.count(pruned)} by the confidence rule, {text.count(capped)} by max_pool"
        sentences.append(f"Dropped from the pools: {dropped}.")
    return " ".join(sentences)


def _draw_plots(outcome: Outcome, curves: Curves, aggregates: Aggregates, axes: XAxes) -> dict[str, Drawing | None]:
    primary, second, measure = outcome.primary, outcome.second, primary_score(outcome.manifest.scores)
    strata = {name.partition("/")[2]: points for name, points in curves.series.items() if name != primary.name}
    run_plots, judged = plots.RunPlots(axes, curves.problems), "decisive_rate" in outcome.metrics
    flat, drawn_by_rubrics = _find_flat(curves), find_drawn_figures(curves.training)
    drawn: dict[str, Drawing | None] = {
        "strata": run_plots.strata(primary, strata) if len(strata) > 1 else None,
        "scores": run_plots.scores(
            [score for score in curves.others if score != second and score not in flat], curves.scores
        ),
        "training": plots.draw_training(
            {name: p for name, p in curves.training.items() if not is_edit(name) and name not in drawn_by_rubrics}
        ),
        "selection": run_plots.selection(curves.search),
        "search": run_plots.search(curves.search),
        "decisive": run_plots.decisive(aggregates.decisive_by_step),
        "calibration": plots.draw_calibration(aggregates.calibration, measure) if judged else None,
    }
    for x in axes:
        drawn[x] = run_plots.score(primary, curves.series.get(primary.name, []), x, whole_range=True)
        if second is not None and second not in flat:
            drawn[f"second_{x}"] = run_plots.score(second, curves.scores.get(second.name, []), x)
    return drawn


def _find_flat(curves: Curves) -> list[Score]:
    """Return the secondary scores whose curves are flat."""
    return [score for score in curves.others if is_flat(score, curves.scores[score.name])]


def _describe_browser(browser: list[BrowserProblem], aggregates: Aggregates, measure: Score) -> str:
    total, shown = len(aggregates.by_problem), len(browser)
    if shown == total:
        return f"All {total} problems with candidates." if total > 1 else "The only problem, with its candidates."
    outcomes = "right and wrong" if measure.is_correctness else f"high and low {text.name_score(measure)}"
    return (
        f"{shown} of {total} problems with candidates, spread over strata and over {outcomes} unless named; "
        "evorun report RUN --problem=ID shows others."
    )

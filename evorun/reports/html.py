"""report.html: one run on one page that opens from disk, loads nothing, and shows hostile texts as texts."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorun.reports import plots, text
from evorun.reports.banners import banners
from evorun.reports.browser import BrowserProblem, load_browser, script_json
from evorun.reports.drawing import X_LABELS, Drawing
from evorun.reports.judge import JudgeDiagnostics, calibration, judge_warning
from evorun.reports.overview import (
    CandidateFigures,
    Curves,
    Outcome,
    load_candidate_figures,
    load_curves,
    load_judge,
    load_outcome,
)
from evorun.reports.page import content_hash, markup, own_file, render, write_page
from evorun.reports.scores import score_cells, score_rows
from evorun.runs.candidates import SHARED
from evorun.runs.reading import read_steps
from evorun.runs.schema import Manifest, ModelInRun
from evorun.runs.scores import Score, yardstick
from evorun.runs.statistics import Proportion

REPORT = "report.html"


class Tile(NamedTuple):
    """A key figure at the top of the page."""

    label: str
    value: str
    note: str


def write_report(run_dir: Path, problems: Sequence[str] | None = None) -> Path:
    """Write `run_dir`/report.html, replacing an earlier one in one step, and return its path.

    The browser of candidates holds the named problems, or a spread of them. Raises RunDirectoryError for a folder
    that is not a run's, cannot be written or lacks a named problem, and DataError for a malformed record.
    """
    return write_page(run_dir / REPORT, render_report(run_dir, problems))


def render_report(run_dir: Path, problems: Sequence[str] | None = None) -> str:
    """Return the page's HTML, always drawn anew: a page that lies in the folder may be anybody's.

    Raises as `write_report`, but for writing.
    """
    return render("template.html.j2", _context(run_dir, problems))


def _context(run_dir: Path, problems: Sequence[str] | None) -> dict[str, Any]:
    outcome = load_outcome(run_dir)
    steps = read_steps(run_dir)
    curves = load_curves(outcome, steps)
    measure = yardstick(outcome.manifest.scores)
    figures = load_candidate_figures(run_dir, measure)
    judge = load_judge(run_dir, figures.utilities)
    browser = load_browser(run_dir, outcome.predictions, steps, figures.by_problem, measure, problems)
    # the index opens at once; a problem's own data is parsed when it is chosen
    shown = ("id", "stratum", "correct", "value", "candidates", "text_limit")
    index = [{name: getattr(problem, name) for name in shown} for problem in browser]
    score = {"words": text.words(measure.name), "higher_is_better": measure.higher_is_better}
    script = own_file("diff.js") + own_file("browser.js")
    return {
        "outcome": outcome,
        "manifest": outcome.manifest,
        "banners": banners(outcome),
        "tiles": _tiles(outcome, figures),
        "facts": _facts(outcome.manifest),
        "curves": curves,
        "primary": outcome.primary,
        "score_cells": score_cells,
        "score_rows": score_rows(outcome),
        "second": outcome.second,
        "right_or_wrong": measure.is_correctness,
        "strata_left_out": max(len(curves.series) - 1 - plots.MAX_PANELS, 0),
        "cost_rows": [text.cost_row(role, spent) for role, spent in outcome.cost.items()],
        "wasted_rows": text.wasted_rows(outcome.wasted),
        "judge": judge,
        "judge_rows": _judge_rows(judge, measure) if judge else [],
        "judge_warning": judge_warning(judge) if judge else None,
        "plots": _plots(outcome, curves, figures, judge),
        "browser": browser,
        "browser_note": _browser_note(browser, figures, measure),
        "browser_index": markup(script_json(index)),
        "browser_score": markup(script_json(None if measure.is_correctness else score)),
        "style": markup(own_file("report.css")),
        "script": markup(script),
        "script_hash": markup(content_hash(script)),
    }


def _tiles(outcome: Outcome, figures: CandidateFigures) -> list[Tile]:
    total = outcome.cost.get("total")
    failed = sum(p.stop == "failed" for p in outcome.predictions)
    tiles = []
    for score in filter(None, (outcome.primary, outcome.second)):
        if (metric := outcome.metrics.get(score.name)) is not None:
            note = f"95 % interval {text.value_interval(score, metric.ci95)}; n = {text.count(metric.n)}"
            tiles.append(Tile(text.sentence(text.label(score)), text.value(score, metric.value), note))
    ended = "all ended" if outcome.finished else "so far"
    tiles.append(
        Tile("Problems ended", text.count(len(outcome.predictions)), f"{failed} without result" if failed else ended)
    )
    if total is not None:
        tokens = f"{text.compact(total.prompt_tokens)} prompt, {text.compact(total.completion_tokens)} completion"
        tiles.append(Tile("Model calls", text.count(total.calls), "all roles"))
        tiles.append(Tile("Tokens", text.compact(total.tokens), tokens))
    if outcome.manifest.seconds is not None:
        tiles.append(Tile("Time", text.duration(outcome.manifest.seconds), "wall clock"))
    if figures.total:
        lost, retried = figures.unparsable, figures.retried
        note = f"{text.count(lost.successes)} of {text.count(lost.n)} candidates; {retried.successes} retried"
        tiles.append(Tile("Unparsable", text.percent(lost.value), note))
    return tiles


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return name and value of all that identifies the run and was recorded."""
    hardware = ", ".join(f"{name} {value}" for name, value in manifest.hardware.items() if value)
    isolation = None
    if (sandbox := manifest.sandbox) is not None:
        strength = "full isolation" if sandbox.full else "NOT fully isolated"
        isolation = ": ".join(filter(None, [f"{sandbox.isolation}, {strength}", sandbox.note]))
    stages = {}
    for stage_name, stage in manifest.stages.items():
        trained = [] if stage.model is None else [_model(stage.model)]
        stages[f"Stage ({stage_name})"] = "; ".join([*trained, stage.folder, f"digest {stage.digest}"])
    facts = {
        "Status": manifest.status,
        "Method": manifest.method,
        "Task": manifest.task,
        **{f"Model ({role})": _model(model) for role, model in manifest.models.items()},
        **stages,
        "Data": ": ".join(filter(None, [manifest.provenance.source, manifest.provenance.description])),
        "Information": manifest.regime,
        "Sandbox": isolation,
        "Seed": manifest.seed,
        "Started": manifest.started,
        "Ended": manifest.ended,
        "Command": shlex.join(manifest.command),
        "Version": " ".join(filter(None, [manifest.evorun_version, manifest.git_commit])),
        "Hardware": hardware,
        "Config digest": manifest.config_digest,
        "Data digest": manifest.provenance.digest,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _model(model: ModelInRun) -> str:
    named = model.name if model.id in ("", model.name) else f"{model.name} ({model.id})"
    return f"{named} on {model.engine}" if model.engine else named


def _judge_rows(judge: JudgeDiagnostics, measure: Score) -> list[tuple[str, Proportion, str]]:
    better = "right candidate, when one is right and one wrong"
    if not measure.is_correctness:
        better = f"candidate with the better {text.words(measure.name)}, when they differ"
    return [
        ("Decisive: the same winner in each order judged", judge.decisive, "duels"),
        ("Position: verdict A among verdicts A or B (50 % is unbiased)", judge.position_a, "verdicts"),
        (f"Agreement: won by the {better}", judge.agreement, "decisive duels"),
        ("Ties", judge.tie, "verdicts"),
        ("Unparsable", judge.invalid, "verdicts"),
    ]


def _plots(
    outcome: Outcome, curves: Curves, figures: CandidateFigures, judge: JudgeDiagnostics | None
) -> dict[str, Drawing | None]:
    primary, second, measure = outcome.primary, outcome.second, yardstick(outcome.manifest.scores)
    strata = {name.partition("/")[2]: points for name, points in curves.series.items() if name != primary.name}
    drawn: dict[str, Drawing | None] = {
        "strata": plots.strata_plot(primary, strata) if len(strata) > 1 else None,
        "scores": plots.scores_plot([score for score in curves.others if score != second], curves.scores),
        "training": plots.training_plot(curves.training),
        "decisive": plots.decisive_plot(judge.decisive_by_step) if judge else None,
        "calibration": plots.calibration_plot(calibration(figures.graded_means, measure), measure) if judge else None,
    }
    for x in X_LABELS:
        drawn[x] = plots.score_plot(primary, curves.series.get(primary.name, []), x, whole_range=True)
        of_second = [] if second is None else curves.scores.get(second.name, [])
        drawn[f"second_{x}"] = None if second is None else plots.score_plot(second, of_second, x)
    return drawn


def _browser_note(browser: list[BrowserProblem], figures: CandidateFigures, measure: Score) -> str:
    total, shown = len(figures.by_problem), sum(problem.id != SHARED for problem in browser)
    if shown == total:
        return f"All {total} problems with candidates."
    outcomes = "right and wrong" if measure.is_correctness else f"high and low {text.words(measure.name)}"
    return (
        f"{shown} of {total} problems with candidates, chosen to spread over strata and over {outcomes} "
        "unless named; evorun report RUN --problem=ID shows others."
    )

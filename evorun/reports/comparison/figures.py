"""The figures of a comparison: final scores and scores during the runs, for each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from evorun.reports import text
from evorun.reports.axes import TRAINING_AXES, AxisName
from evorun.reports.comparison.arms import Point, mean_curve
from evorun.reports.comparison.comparison import ComparedRuns, Panel
from evorun.reports.comparison.evolution import (
    collect_training_lines,
    compute_rubric_lengths,
    compute_rubric_strictness,
)
from evorun.reports.comparison.level_plots import draw_levels
from evorun.reports.comparison.notes import STRATA_CURVES_NOTE, lines_note, name_intervals, shared_lines_note
from evorun.reports.comparison.pareto import draw_front
from evorun.reports.comparison.plots import (
    Style,
    assign_styles,
    collect_curves,
    draw_bars,
    draw_curves,
    draw_lines_over_seeds,
    list_points,
)
from evorun.reports.comparison.rewards import draw_rewards_beside_scores
from evorun.reports.comparison.rows import find_reported_model, make_row
from evorun.reports.drawing import Drawing, marked_drawings
from evorun.reports.facts import mark_origins
from evorun.reports.method_figures import is_own
from evorun.reports.plots import MAX_PANELS, RunPlots
from evorun.runs.schema import MetricPoint
from evorun.runs.scores import Score

_AGAINST: Mapping[AxisName, str] = {
    "calls": "Against model calls",
    "tokens": "Against tokens",
    "price": "Against price",
    "sequential_tokens": "Against sequential tokens",
}


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure with what stands above it."""

    caption: str
    note: str
    drawing: Drawing


@dataclass(frozen=True)
class Figures:
    """All figures of a comparison."""

    finals: Sequence[CaptionedFigure]
    """Of the primary scores."""
    other_finals: Sequence[CaptionedFigure]
    """Of the second scores, and of others of which a paper has figures."""
    curves: Mapping[str, Sequence[CaptionedFigure]]
    """By heading: scores during the runs."""
    lines_note: str
    """Explains the lines of the curves."""
    methods: Sequence[CaptionedFigure]
    """Figures of the methods' own by step."""
    trained: Sequence[CaptionedFigure]
    """Reward, KL divergence and gold score of runs that train."""
    rubrics: Sequence[CaptionedFigure]
    """Lengths and strictness of rubrics."""

    def __iter__(self) -> Iterator[Drawing]:
        """Yield all drawings."""
        curves = (figure for figures in self.curves.values() for figure in figures)
        for figure in (*self.finals, *self.other_finals, *curves, *self.methods, *self.trained, *self.rubrics):
            yield figure.drawing


def make_figures(comparison: ComparedRuns) -> Figures:
    """Draw all figures of a comparison, marked with the origins of its runs."""
    with marked_drawings(mark_origins(*comparison.origins)):
        return _make_figures(comparison)


def _make_figures(comparison: ComparedRuns) -> Figures:
    panels, styles = comparison.panels, assign_styles(comparison)
    curves: dict[str, list[CaptionedFigure]] = {}
    has_marks = False
    for panel in panels:
        on = f": {panel.task}" if len(panels) > 1 else ""
        # against cost too, where the score decides which arm is better
        ranked = [score for score in (panel.primary, panel.second) if score]
        drawn: list[tuple[Score, AxisName]] = [(score, x) for score in ranked for x in panel.axes]
        drawn += [(score, "step") for score in panel.drawn_scores if score not in ranked]
        for score, x in drawn:
            if score != panel.primary and (panel.is_flat(score) or not comparison.shows(score)):
                continue
            lines = collect_curves(panel, score, panel.axes[x])
            stem = _name_figure(comparison, panel, f"{score.name}-{x}")
            drawing = draw_curves(lines, panel, score, panel.axes[x], styles, stem)
            name = text.sentence(text.name_score(score))
            heading, caption = f"{name} during the runs{on}", _AGAINST.get(x, f"By {panel.axes[x].label}")
            if score not in ranked:
                heading, caption = f"Further scores during the runs{on}", name
            if drawing is not None:
                marked = any(len(line.points) == 1 and not line.arm.is_baseline for line in lines)
                has_marks = has_marks or marked
                note = lines_note([panel], [panel.axes[x]], has_marks=marked)
                scale = _describe_scale(drawing)
                explained = drawing.with_caption(f"{heading}, {caption[:1].lower()}{caption[1:]}", note, scale)
                curves.setdefault(heading, []).append(CaptionedFigure(caption, scale, explained))
    if (strata := _draw_strata(comparison)) is not None:
        curves.setdefault("In each stratum", []).append(strata)
    finals = [
        figure
        for panel in panels
        for figure in (
            _draw_final(comparison, panel, panel.primary),
            _draw_front(comparison, panel, styles),
            _draw_levels(comparison, panel, styles),
        )
    ]
    others = [
        _draw_final(comparison, panel, score)
        for panel in panels
        for score in panel.other_scores
        if (score == panel.second and comparison.shows(score)) or panel.has_reported(score)
    ]
    return Figures(
        [figure for figure in finals if figure],
        [figure for figure in others if figure],
        curves,
        lines_note(panels, list(comparison.axes.values()), has_marks=has_marks),
        [figure for panel in panels for figure in _draw_methods(comparison, panel, styles)],
        [figure for panel in panels for figure in _draw_training(comparison, panel, styles)],
        [figure for panel in panels for figure in _draw_rubrics(comparison, panel, styles)],
    )


def _draw_strata(comparison: ComparedRuns) -> CaptionedFigure | None:
    """Draw the primary score of a single arm by step in each stratum, as means over its seeds; None beside others."""
    arms = [arm for arm in comparison.arms if not arm.is_baseline]
    if len(arms) != 1 or len(runs := arms[0].runs) < 2:
        return None
    panel = next(panel for panel in comparison.panels if arms[0] in panel.arms)
    score = panel.primary
    if score.name != runs[0].manifest.scores[0].name or all(run.generation == 0 for run in runs):
        return None  # chosen by --score, or a figure of dots
    means = {}
    for stratum in comparison.strata:
        lines = [
            [Point(point.step, point.step, point.value, None) for point in points if point.value is not None]
            for run in runs
            if (points := run.curves_by_stratum.get(stratum))
        ]
        means[stratum] = mean_curve([line for line in lines if line], score, panel.axes["step"])
    series = {
        stratum: [MetricPoint(point.step, stratum, point.value, point.ci95, 0, 0, 0) for point in mean]
        for stratum, mean in means.items()
    }
    drawing = RunPlots(panel.axes, problems=0).strata(score, series)
    if drawing is None:
        return None
    rows = [list_points(drawing.name, arms[0], mean, stratum=stratum) for stratum, mean in means.items()]
    caption = f"{text.sentence(text.name_score(score))} by {panel.axes['step'].label} and stratum"
    return _caption(caption, _join(STRATA_CURVES_NOTE), replace(drawing, points=list(chain.from_iterable(rows))))


def _draw_methods(comparison: ComparedRuns, panel: Panel, styles: Mapping[str, Style]) -> list[CaptionedFigure]:
    """Draw the methods' own figures by step, without those that never change or that a single arm has."""
    on, step = f": {panel.task}" if len(comparison.tasks) > 1 else "", panel.axes["step"].label
    drawn = [arm for arm in panel.arms if not arm.is_baseline and not arm.runs[0].outcome.trained]
    names = dict.fromkeys(name for arm in drawn for run in arm.runs for name in run.diagnostics if is_own(name))
    note = _join("Means over the problems that took the step", shared_lines_note(panel, f"{step}s"))
    figures = []
    for name in names:
        lines = {
            run.name: [Point(point.step, point.step, point.value, None) for point in points if point.value is not None]
            for arm in drawn
            for run in arm.runs
            if (points := run.diagnostics.get(name))
        }
        having = sum(any(run.name in lines for run in arm.runs) for arm in drawn)
        if having < 2 or all(len({point.value for point in line}) < 2 for line in lines.values()):
            continue
        stem, words = _name_figure(comparison, panel, f"method-{text.file_stem(name)}"), text.words(name)
        drawing = draw_lines_over_seeds(panel, lines, styles, stem, (step, words), (None, None))
        figures.append((f"{text.sentence(words)}{on}", note, drawing))
    return _keep_drawn(figures[:MAX_PANELS])


def _draw_training(comparison: ComparedRuns, panel: Panel, styles: Mapping[str, Style]) -> list[CaptionedFigure]:
    """Draw reward, KL divergence and gold score by training step."""
    on = f": {panel.task}" if len(comparison.tasks) > 1 else ""
    figures = []
    note = _join("By training step", shared_lines_note(panel, "steps", bands=False))
    for y, lines in collect_training_lines(panel).items():
        name = _name_figure(comparison, panel, f"training-{text.file_stem(y)}")
        drawing = draw_lines_over_seeds(panel, lines, styles, name, (TRAINING_AXES["step"].label, y))
        figures.append((f"{text.sentence(y)}{on}", note, drawing))
    beside = draw_rewards_beside_scores(panel, styles, _name_figure(comparison, panel, "reward-beside-score"))
    note = (
        "Above: means over each step's rollouts, by each arm's own measure; below: the test problems. Means over seeds"
    )
    figures.append((f"Reward beside the score{on}", note, beside))
    rewarded = [hacking for run in panel.runs if (hacking := run.outcome.hacking) is not None]
    gold = next((hacking.gold for hacking in rewarded if hacking.by_rubric), None)
    if gold is not None:
        name = _name_figure(comparison, panel, f"gold-{gold.name}")
        curves = collect_curves(panel, gold, panel.axes["step"])
        drawing = draw_curves(curves, panel, gold, panel.axes["step"], styles, name, text.gold_prefix(gold))
        has_marks = any(len(curve.points) == 1 and not curve.arm.is_baseline for curve in curves)
        explained = lines_note([panel], [panel.axes["step"]], has_marks=has_marks)
        samples = "" if gold == panel.primary else ", the mean over a problem's samples"
        note = _join(f"A score that training never sees: {text.label(gold)}{samples}", explained)
        caption = "gold score" if text.gold_prefix(gold) else text.name_score(gold)
        figures.append((f"{text.sentence(caption)}{on}", note, drawing))
    return _keep_drawn(figures)


def _draw_rubrics(comparison: ComparedRuns, panel: Panel, styles: Mapping[str, Style]) -> list[CaptionedFigure]:
    """Draw lengths and strictness of rubrics by refinement."""
    on = f": {panel.task}" if len(comparison.tasks) > 1 else ""
    lengths, strictness = (
        {run.name: read(run) for run in panel.runs} for read in (compute_rubric_lengths, compute_rubric_strictness)
    )
    scored = [run.name for run in panel.runs if strictness[run.name]]
    of_runs = sum(bool(line) for line in lengths.values())
    if all(len(line) < 2 for line in lengths.values()):
        lengths = {}  # nothing was refined
    names = [_name_figure(comparison, panel, name) for name in ("rubric-lengths", "rubric-strictness")]
    of_length = draw_lines_over_seeds(panel, lengths, styles, names[0], ("refinements", "words per item"), (0, None))
    strict = draw_lines_over_seeds(
        panel, strictness, styles, names[1], ("refinements", "share of points given"), (0, 1)
    )
    lines = shared_lines_note(panel, "refinements")
    about = "By refinement: each rubric scores its run's responses to the last evaluation's problems, as in training"
    partly = f"Rescored: {len(scored)} of {of_runs} runs; means are over these" if len(scored) < of_runs else ""
    alone = any(sum(run.name in scored for run in arm.runs) == 1 for arm in panel.arms)
    single = "The band of a run that stands alone is a 95 % interval over its problems (BCa bootstrap)" if alone else ""
    return _keep_drawn(
        [
            (f"Length of the rubric{on}", _join("By refinement", lines), of_length),
            (f"Strictness of the rubric{on}", _join(about, partly, lines, single), strict),
        ]
    )


def _join(*sentences: str) -> str:
    return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)


def _keep_drawn(figures: Sequence[tuple[str, str, Drawing | None]]) -> list[CaptionedFigure]:
    return [_caption(caption, note, drawing) for caption, note, drawing in figures if drawing is not None]


def _caption(caption: str, note: str, drawing: Drawing) -> CaptionedFigure:
    """Return a figure whose files have its caption and note, too, and which says where its axis is not linear."""
    noted = _join(note, scale) if (scale := _describe_scale(drawing)) else note
    return CaptionedFigure(caption, noted, drawing.with_caption(caption, noted))


def _describe_scale(drawing: Drawing) -> str:
    """Say that the horizontal axis of a figure is not linear; empty where it is."""
    scales = {"log": "The horizontal axis is logarithmic.", "symlog": "The horizontal axis is logarithmic beyond 1."}
    return scales.get(drawing.figure.axes[0].get_xscale(), "")


def _draw_final(comparison: ComparedRuns, panel: Panel, score: Score) -> CaptionedFigure | None:
    name = _name_figure(comparison, panel, f"final-{score.name}")
    drawing = draw_bars(panel, score, assign_styles(comparison), name)
    on = f" on {panel.task}" if len(comparison.tasks) > 1 else ""
    notes = [f"With {name_intervals(panel.arms, score)}"]
    if any(len(arm.runs) > 1 for arm in panel.arms):
        notes.append("small circles are single runs")
    if panel.has_reported(score):
        of_model = f" of {model}" if (model := find_reported_model(comparison.rows)) is not None else ""
        notes.append(f"hollow diamonds are the paper's figures{of_model}")
    baselines = [make_row(arm).get_metric(score.name).value for arm in panel.arms if arm.is_baseline]
    if any(baselines):  # a bar of length 0 has no outline
        notes.append("dashed outlines are random baselines")
    caption = f"Final {text.name_score(score)}{on}"
    return None if drawing is None else _caption(caption, "; ".join(notes), drawing)


def _draw_front(comparison: ComparedRuns, panel: Panel, styles: Mapping[str, Style]) -> CaptionedFigure | None:
    drawn = draw_front(panel, styles, _name_figure(comparison, panel, f"front-{panel.primary.name}"))
    if drawn is None:
        return None
    on = f" on {panel.task}" if len(comparison.tasks) > 1 else ""
    caption, drawing = drawn
    note = "Joined: no other arm is both cheaper and better. Grey: some other arm is. With " + name_intervals(
        [arm for arm in panel.arms if not arm.is_baseline], panel.primary
    )
    return _caption(f"{text.sentence(text.name_score(panel.primary))}{on} {caption.lower()}", note, drawing)


def _draw_levels(comparison: ComparedRuns, panel: Panel, styles: Mapping[str, Style]) -> CaptionedFigure | None:
    factorial = next((one for one in comparison.factorials if one.task == panel.task), None)
    name = _name_figure(comparison, panel, f"levels-{panel.primary.name}")
    drawing = None if factorial is None else draw_levels(factorial, panel, styles, name)
    if drawing is None or factorial is None:
        return None
    on = f" on {panel.task}" if len(comparison.tasks) > 1 else ""
    at = "at the calls that each arm took" if factorial.by_calls else "at each level"
    note = (
        f"Final scores {at}, with {name_intervals(panel.arms, panel.primary)}; a method has the colour of its first arm"
    )
    grey = ". Grey dashed lines are random baselines, with their methods' marks" if factorial.baselines else ""
    caption = f"{text.sentence(text.name_score(panel.primary))}{on} by {factorial.key}"
    return _caption(caption, note + grey, drawing)


def _name_figure(comparison: ComparedRuns, panel: Panel, name: str) -> str:
    return name if len(comparison.tasks) == 1 else f"{name}-{panel.task}"

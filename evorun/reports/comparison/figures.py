"""The figures of a comparison: final scores and scores along the runs, for each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evorun.reports import text
from evorun.reports.axes import OF_TRAINING, XAxis
from evorun.reports.comparison.comparison import Comparison, Panel
from evorun.reports.comparison.evolution import rubric_lengths, rubric_strictness, training_lines
from evorun.reports.comparison.plots import Style, assign_styles, bars_plot, curves_plot, over_seeds_plot
from evorun.reports.drawing import Drawing
from evorun.runs.scores import Score

_AGAINST: Mapping[XAxis, str] = {"calls": "Against model calls", "tokens": "Against tokens"}


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
    second_finals: Sequence[CaptionedFigure]
    """Of the second scores."""
    along: Mapping[str, Sequence[CaptionedFigure]]
    """By heading: scores along the runs."""
    trained: Sequence[CaptionedFigure]
    """Reward, KL divergence and gold score of runs that train."""
    rubrics: Sequence[CaptionedFigure]
    """Lengths and strictness of rubrics."""

    def __iter__(self) -> Iterator[Drawing]:
        """Yield all drawings."""
        along = (figure for one in self.along.values() for figure in one)
        for figure in (*self.finals, *self.second_finals, *along, *self.trained, *self.rubrics):
            yield figure.drawing


def make_figures(comparison: Comparison) -> Figures:
    """Draw all figures of a comparison."""
    panels, styles = comparison.panels, assign_styles(comparison)
    along: dict[str, list[CaptionedFigure]] = {}
    for panel in panels:
        on = f": {panel.task}" if len(panels) > 1 else ""
        # against cost too, where the score decides which arm is better
        ranked = [score for score in (panel.primary, panel.second) if score]
        drawn: list[tuple[Score, XAxis]] = [(score, x) for score in ranked for x in panel.along]
        drawn += [(score, "step") for score in panel.drawn_scores if score not in ranked]
        for score, x in drawn:
            if score != panel.primary and panel.is_flat(score):
                continue
            drawing = curves_plot(panel, score, panel.along[x], styles, _name(comparison, panel, f"{score.name}-{x}"))
            name = text.sentence(text.words(score.name))
            heading, caption = f"{name} along the runs{on}", _AGAINST.get(x, f"By {panel.along[x].label}")
            if score not in ranked:
                heading, caption = f"Further scores along the runs{on}", name
            if drawing is not None:
                along.setdefault(heading, []).append(CaptionedFigure(caption, "", drawing))
    finals = [_final(comparison, panel, panel.primary) for panel in panels]
    seconds = [_final(comparison, panel, panel.second) for panel in panels if panel.second]
    return Figures(
        [figure for figure in finals if figure],
        [figure for figure in seconds if figure],
        along,
        [figure for panel in panels for figure in _of_training(comparison, panel, styles)],
        [figure for panel in panels for figure in _of_rubrics(comparison, panel, styles)],
    )


def _of_training(comparison: Comparison, panel: Panel, styles: Mapping[str, Style]) -> list[CaptionedFigure]:
    """Draw reward, KL divergence and gold score by training step."""
    on = f": {panel.task}" if len(comparison.tasks) > 1 else ""
    figures = []
    for y, lines in training_lines(panel).items():
        name = _name(comparison, panel, f"training-{text.file_stem(y)}")
        drawing = over_seeds_plot(panel, lines, styles, name, (OF_TRAINING["step"].label, y))
        note = "Of each training step; over seeds their mean, with the runs as thin lines"
        figures.append((f"{text.sentence(y)}{on}", note if panel.has_seeds else "Of each training step", drawing))
    gold = next((run.outcome.hacking.gold for run in panel.runs if run.outcome.hacking), None)
    if gold is not None:
        name = _name(comparison, panel, f"gold-{gold.name}")
        drawing = curves_plot(panel, gold, panel.along["step"], styles, name, "gold score: ")
        figures.append((f"Gold score{on}", f"What training never sees: {text.label(gold)}", drawing))
    return _captioned(figures)


def _of_rubrics(comparison: Comparison, panel: Panel, styles: Mapping[str, Style]) -> list[CaptionedFigure]:
    """Draw lengths and strictness of rubrics by refinement."""
    on = f": {panel.task}" if len(comparison.tasks) > 1 else ""
    lengths, strictness = ({run.name: read(run) for run in panel.runs} for read in (rubric_lengths, rubric_strictness))
    if all(len(line) < 2 for line in lengths.values()):
        lengths = {}  # nothing was refined
    names = [_name(comparison, panel, name) for name in ("rubric-lengths", "rubric-strictness")]
    of_length = over_seeds_plot(panel, lengths, styles, names[0], ("refinements", "words of an item"))
    strict = over_seeds_plot(panel, strictness, styles, names[1], ("refinements", "share of points given"))
    return _captioned(
        [
            (f"Length of the rubric{on}", "By refinement", of_length),
            (f"Strictness of the rubric{on}", "By refinement; the same responses under each", strict),
        ]
    )


def _captioned(figures: Sequence[tuple[str, str, Drawing | None]]) -> list[CaptionedFigure]:
    return [CaptionedFigure(caption, note, drawing) for caption, note, drawing in figures if drawing is not None]


def _final(comparison: Comparison, panel: Panel, score: Score) -> CaptionedFigure | None:
    name = _name(comparison, panel, f"final-{score.name}")
    drawing = bars_plot(panel, score, assign_styles(comparison), name)
    on = f" on {panel.task}" if len(comparison.tasks) > 1 else ""
    told = ["With 95 % intervals"]
    if any(len(arm.runs) > 1 for arm in panel.arms):
        told.append("small circles are single runs")
    if comparison.has_reported:
        told.append("hollow diamonds are the paper's figures")
    if any(arm.floor for arm in panel.arms):
        told.append("dashed outlines are floors")
    caption = f"Final {text.words(score.name)}{on}"
    return None if drawing is None else CaptionedFigure(caption, "; ".join(told), drawing)


def _name(comparison: Comparison, panel: Panel, name: str) -> str:
    return name if len(comparison.tasks) == 1 else f"{name}-{panel.task}"

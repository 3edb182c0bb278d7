"""The figures of a comparison: final scores and scores along the runs, for each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison, Panel
from evorun.reports.comparison.plots import bars_plot, curves_plot, styles_of
from evorun.reports.comparison.refinement import rubric_drawings
from evorun.reports.drawing import X_LABELS, Drawing, XAxis
from evorun.runs.scores import Score

_AGAINST: Mapping[XAxis, str] = {"step": "By generation", "calls": "Against model calls", "tokens": "Against tokens"}


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
    rubrics: Sequence[CaptionedFigure]
    """Lengths and strictness of rubrics."""

    def __iter__(self) -> Iterator[Drawing]:
        """Yield all drawings."""
        along = (figure for one in self.along.values() for figure in one)
        for figure in (*self.finals, *self.second_finals, *along, *self.rubrics):
            yield figure.drawing


def figures_of(comparison: Comparison) -> Figures:
    """Draw all figures of a comparison."""
    panels, styles = comparison.panels, styles_of(comparison)
    along: dict[str, list[CaptionedFigure]] = {}
    for panel in panels:
        on = f": {panel.task}" if len(panels) > 1 else ""
        # against cost too, where the score decides which arm is better
        ranked = [score for score in (panel.primary, panel.second) if score]
        drawn: list[tuple[Score, XAxis]] = [(score, x) for score in ranked for x in X_LABELS]
        drawn += [(score, "step") for score in panel.drawn_scores if score not in ranked]
        for score, x in drawn:
            drawing = curves_plot(panel, score, x, styles, _name(comparison, panel, f"{score.name}-{x}"))
            name = text.sentence(text.words(score.name))
            heading, caption = f"{name} along the runs{on}", _AGAINST[x]
            if score not in ranked:
                heading, caption = f"Further scores along the runs{on}", name
            if drawing is not None:
                along.setdefault(heading, []).append(CaptionedFigure(caption, "", drawing))
    finals = [_final(comparison, panel, panel.primary) for panel in panels]
    seconds = [_final(comparison, panel, panel.second) for panel in panels if panel.second]
    colours = {run.name: styles[arm.name]["color"] for arm in comparison.arms for run in arm.runs}
    drawn_rubrics = rubric_drawings(comparison.runs, colours)
    rubrics = [CaptionedFigure(name, "By refinement", drawing) for name, drawing in drawn_rubrics.items()]
    return Figures([figure for figure in finals if figure], [figure for figure in seconds if figure], along, rubrics)


def _final(comparison: Comparison, panel: Panel, score: Score) -> CaptionedFigure | None:
    name = _name(comparison, panel, f"final-{score.name}")
    drawing = bars_plot(panel, score, styles_of(comparison), name)
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

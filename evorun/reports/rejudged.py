"""The table of a rejudging: recorded opinions beside those of another judge, rubric or grader."""

from collections.abc import Sequence
from pathlib import Path

from evorun.errors import EvorunError
from evorun.reports import text
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.schema import Metric
from evorun.runs.studies import REJUDGED, Opinions, RejudgedFigure, RejudgeManifest, load_figures, load_rejudge

_CAPTIONS: dict[Opinions, str] = {
    "duels": "share of decided duels; agreement: share of equal winners among those that both decided",
    "rewards": "mean share of the rubric's points; agreement: rank correlation within steps",
    "grades": "mean scores; agreement: share of equal grades, or rank correlation",
}


def make_rejudged_table(manifest: RejudgeManifest, figures: Sequence[RejudgedFigure]) -> Table:
    """Return the figures with their intervals; the caption says what they measure."""
    has_differences = any(figure.difference is not None for figure in figures)
    return Table(
        [
            *word_columns(manifest.kind),
            *figure_columns("n", "recorded", "now", *(["difference"] if has_differences else []), "agreement"),
        ],
        [
            [
                figure.group,
                figure.n,
                _format(figure.recorded),
                _format(figure.now),
                *([_format(figure.difference)] if has_differences else []),
                _format(figure.agreement),
            ]
            for figure in figures
        ],
        title=f"{manifest.kind} again: {manifest.asked or 'as recorded'}",
        caption=". ".join(filter(None, (_CAPTIONS[manifest.kind], manifest.ended_early))),
        name=f"rejudged_{manifest.kind}",
    )


def load_rejudged_tables(run: Path) -> list[Table]:
    """Return the tables of a run's completed rejudgings, the oldest first; unreadable ones are left out."""
    found = []
    for file in run.glob(f"rejudge/*/{REJUDGED}"):
        try:
            manifest = load_rejudge(file.parent)
            if manifest.status == "completed":
                found.append((manifest.started, make_rejudged_table(manifest, load_figures(file.parent))))
        except EvorunError:
            continue
    return [table for _, table in sorted(found, key=lambda pair: pair[0])]


def _format(figure: Metric | None) -> str | None:
    if figure is None or figure.value is None:
        return None
    interval = "" if figure.ci95 is None else f" ({text.number_interval(figure.ci95)})"
    return f"{text.number(figure.value)}{interval}"

"""Several judges of the same duels, side by side: the table of a run's rejudgings, and who agrees with whom."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from evorun.reports import text
from evorun.reports.tables import Cell, Table, figure_columns, word_columns
from evorun.runs.agreement import ALL_DUELS, SHOWN_AS_A, WON_BY_BETTER, WON_BY_LONGER
from evorun.runs.candidates import Outcome
from evorun.runs.reading import read_records
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.statistics import Proportion
from evorun.runs.studies import RejudgedFigure, RejudgeManifest, load_figures

RECORDED = "as recorded"
_BOTH_REFITTED = ": both by refitted ratings"
"""End of the group of the figure that compares the choices by both judges' ratings."""
Duel = tuple[str, int, str, str, int]
"""A duel's problem, step, candidates, and its number among the duels of these."""


class _Judge(NamedTuple):
    name: str
    figures: Mapping[str, Metric | None]
    """By group."""
    agreement: Metric | None
    choice: Metric | None
    outcomes: Mapping[Duel, Outcome | None]


def compare_judges(run: Path, rejudgings: Sequence[tuple[Path, RejudgeManifest]]) -> list[Table]:
    """Return a row for each judge, and the agreement of each two; nothing for fewer than two rejudgings of duels.

    rejudgings: folders and manifests of a run's completed ones. Raises RunDirectoryError or DataError.
    """
    duels = [(folder, manifest) for folder, manifest in rejudgings if manifest.kind == "duels"]
    if len(duels) < 2:
        return []
    judges = [_load(folder, manifest.asked or RECORDED) for folder, manifest in duels]
    first = load_figures(duels[0][0])
    by_group = {figure.group: figure.recorded for figure in first}
    recorded = _Judge(RECORDED, by_group, None, _find_choice(first, recorded=True), _read_outcomes(run))
    if all(judge.name != RECORDED for judge in judges):
        judges.insert(0, recorded)
    columns = ("decided", "agrees with\nthe recorded", "for the\nbetter", "for the one\nshown as A", "for the\nlonger")
    score = next((group for group in by_group if group.endswith(_BOTH_REFITTED)), "").removesuffix(_BOTH_REFITTED)
    table = Table(
        [*word_columns("judge"), *figure_columns(*columns, *([f"{score} of\nits choices"] if score else []))],
        name="judges",
        title="judges",
    )
    for judge in judges:
        shares = [judge.figures.get(group) for group in (ALL_DUELS, WON_BY_BETTER, SHOWN_AS_A, WON_BY_LONGER)]
        cells = [shares[0], judge.agreement, *shares[1:], *([judge.choice] if score else [])]
        table.rows.append([judge.name, *map(_format, cells)])
    return [table, _make_pairs_table(judges)]


def _load(folder: Path, name: str) -> _Judge:
    figures = load_figures(folder)
    agreement = next((figure.agreement for figure in figures if figure.group == ALL_DUELS), None)
    by_group = {figure.group: figure.now for figure in figures}
    return _Judge(name, by_group, agreement, _find_choice(figures, recorded=False), _read_outcomes(folder))


def _find_choice(figures: Sequence[RejudgedFigure], *, recorded: bool) -> Metric | None:
    """Return the score of the best candidates by a judge's own ratings."""
    for figure in figures:
        if figure.group.endswith(_BOTH_REFITTED):
            return figure.recorded if recorded else figure.now
    return None


def _read_outcomes(folder: Path) -> dict[Duel, Outcome | None]:
    outcomes: dict[Duel, Outcome | None] = {}
    for duel in read_records(folder / "comparisons.jsonl", ComparisonRecord):
        key = (duel.problem, duel.step, duel.first, duel.second)
        number = 0
        while (*key, number) in outcomes:
            number += 1
        outcomes[*key, number] = duel.outcome
    return outcomes


def _make_pairs_table(judges: Sequence[_Judge]) -> Table:
    """Return the share of equal winners among the duels that both judges of a pair decided."""
    table = Table(
        [*word_columns("judge", "and"), *figure_columns("equal\nwinners", "both\ndecided")],
        name="judges_agreement",
        title="agreement of each two judges",
    )
    for judge, other in combinations(judges, 2):
        share = Proportion()
        for duel, outcome in judge.outcomes.items():
            if outcome is not None and other.outcomes.get(duel) is not None:
                share.add(outcome == other.outcomes[duel])
        table.rows.append([judge.name, other.name, _format(share.metric()), share.n])
    return table


def _format(figure: Metric | None) -> Cell:
    return None if figure is None or figure.value is None else text.percent(figure.value)

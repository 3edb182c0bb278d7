"""The tables of a rejudging: recorded opinions beside those of another judge, rubric or grader."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evorun.errors import ConfigError, EvorunError
from evorun.reports import text
from evorun.reports.judges import compare_judges
from evorun.reports.tables import Cell, Table, figure_columns, word_columns
from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_records
from evorun.runs.reselected import SELECTIONS, Selected, drop_intervals, summarise
from evorun.runs.schema import Metric
from evorun.runs.scores import Score, primary_score
from evorun.runs.statistics import MIN_PROBLEMS
from evorun.runs.stopped import STOPS, Stopped, summarise_stops
from evorun.runs.studies import REJUDGED, Opinions, RejudgedFigure, RejudgeManifest, load_figures, load_rejudge

SIMULATED_NOTE = (
    "Simulated: no language model gave these opinions, or none wrote the texts; figures say nothing about real models."
)
_NOTES: dict[Opinions, str] = {
    "duels": "Recorded, now: the share of decided duels, unless the row names another. Agreement: the share of equal "
    "winners among the duels that both decided; of choices, the share of problems with the same choice.",
    "rewards": "Recorded, now: the mean share of the rubric's points. Agreement: the rank correlation within steps.",
    "grades": "Recorded, now: mean scores. Agreement: the share of equal grades; of scores other than rates, the rank "
    "correlation.",
}
_NOTES["choices"] = (
    "Score: of the candidates that each selector chooses, or its expectation where chance chooses. Difference: to the "
    "run's own choices, paired by problem. Calls: per problem, beyond those of the run."
)
_STOPS = (
    "Stop: the probability that ends a problem. Ended score: of the problems that it ended. Difference: from the "
    "recorded answers. At equal calls: from as many calls, spent evenly on all problems. Both are paired by problem."
)
_JUDGES = (
    "Shares of the decided duels, those of unequal candidates for the better one. The last column of the first table "
    "has the score of the best candidates by each judge's own ratings."
)
_INTERVALS = (
    f"In parentheses: 95 % intervals over problems; there is none for fewer than {MIN_PROBLEMS} problems. At 0 and "
    "100 % they are Wilson's, with each problem as one trial."
)


class RejudgedSection(NamedTuple):
    """A rejudging in a report."""

    title: str
    warning: str | None
    tables: list[Table]
    note: str


def load_rejudging(folder: Path) -> RejudgedSection:
    """Return the tables of a rejudging: of duels, verdicts and the choices that follow from them apart.

    Raises RunDirectoryError.
    """
    return _describe(folder, load_rejudge(folder))


def _describe(folder: Path, manifest: RejudgeManifest) -> RejudgedSection:
    figures = load_figures(folder)
    verdicts = [figure for figure in figures if manifest.kind == "duels" and figure.by != "score"]
    others = [figure for figure in figures if figure not in verdicts]
    title = _describe_title(folder, manifest)
    if manifest.kind == "choices":
        tables = [
            _make_selectors_table(f"selectors_{folder.name}", figures),
            *_make_stops_tables(folder.parents[1], [folder]),
        ]
    else:
        tables = [
            _make_table(manifest.kind, heading, f"rejudged_{heading}_{folder.name}", part)
            for heading, part in (("duels", verdicts), ("choices" if verdicts else manifest.kind, others))
            if part
        ]
    notes = [_NOTES[manifest.kind], *_describe_missing_duels([manifest])]
    notes += [*([_STOPS] if (folder / STOPS).exists() else []), _INTERVALS]
    if manifest.remark:
        notes.append(f"{manifest.remark}.")
    if manifest.ended_early:
        notes.append(f"{text.sentence(manifest.ended_early)}.")
    return RejudgedSection(title, SIMULATED_NOTE if manifest.simulated else None, tables, " ".join(notes))


def _describe_missing_duels(manifests: Sequence[RejudgeManifest]) -> list[str]:
    """Say how rules by duels rate candidates that were in none; nothing where all were in one."""
    without = sum(manifest.without_duel or 0 for manifest in manifests)
    if not without:
        return []
    candidates = sum(manifest.candidates or 0 for manifest in manifests)
    return [
        f"Duels: {without:,} of {candidates:,} candidates were in none. By duels, each of these counts as an average "
        "one, so that a single duel won or lost puts another above or below all of them."
    ]


def describe_grader(folder: Path) -> str:
    """Return what gave the grades of a rejudging, and whether its code has changed since the run."""
    return _describe_title(folder, load_rejudge(folder))


def _describe_title(folder: Path, manifest: RejudgeManifest) -> str:
    title = f"{manifest.kind} again: {manifest.asked or 'as recorded'}"
    if not manifest.plugins:
        return title
    earlier = load_manifest(folder.absolute().parents[1]).plugins
    changed = any(
        kind not in earlier or plugin.digest != earlier[kind].digest for kind, plugin in manifest.plugins.items()
    )
    return f"{title}, changed since the run" if changed else f"{title}, as in the run"


def load_rejudgings(run: Path) -> list[RejudgedSection]:
    """Return a run's completed rejudgings, the oldest first, then its judges side by side where there are several.

    Unreadable ones are left out.
    """
    sections = []
    for folder, manifest in _find_completed(run):
        with suppress(EvorunError):
            sections.append(_describe(folder, manifest))
    with suppress(EvorunError):
        sections += load_judges(run)
    return sections


def load_judges(run: Path) -> list[RejudgedSection]:
    """Return the section of all judges of a run's duels; nothing for fewer than two completed rejudgings of duels.

    Raises RunDirectoryError or DataError.
    """
    completed = _find_completed(run)
    tables = compare_judges(run, completed)
    simulated = any(manifest.simulated for _, manifest in completed)
    title, warning = "all judges of these duels", SIMULATED_NOTE if simulated else None
    return [RejudgedSection(title, warning, tables, _JUDGES)] if tables else []


def _find_completed(run: Path) -> list[tuple[Path, RejudgeManifest]]:
    found = []
    for file in run.glob(f"rejudge/*/{REJUDGED}"):
        with suppress(EvorunError):
            found.append((file.parent, load_rejudge(file.parent)))
    completed = [study for study in found if study[1].status == "completed"]
    return sorted(completed, key=lambda study: study[1].started)


def pool_selections(runs: Sequence[Path], folders: Sequence[Path]) -> RejudgedSection:
    """Return the section of several runs' reselections together, given by their folders.

    A problem that several runs share counts once. Raises ConfigError for runs of different tasks.
    """
    manifests = [load_manifest(run) for run in runs]
    if len({manifest.task for manifest in manifests}) > 1:
        raise ConfigError(f"expected runs of one task to pool, got {', '.join(sorted({m.task for m in manifests}))}")
    selected = [list(read_records(folder / SELECTIONS, Selected)) for folder in folders]
    figures = [drop_intervals(figure) for figure in summarise(selected, primary_score(manifests[0].scores))]
    warning = SIMULATED_NOTE if any(manifest.simulated for manifest in manifests) else None
    tables = [_make_selectors_table("selectors", figures), *_make_stops_tables(runs[0], folders)]
    notes = [_NOTES["choices"], *_describe_missing_duels([load_rejudge(folder) for folder in folders])]
    notes += [*([_STOPS] if len(tables) > 1 else []), _INTERVALS]
    return RejudgedSection(f"choices of {len(runs)} runs", warning, tables, " ".join(notes))


def _make_stops_tables(run: Path, folders: Sequence[Path]) -> list[Table]:
    """Return the table of early ends in reselections, a row per threshold; none where no threshold was given.

    run: any of their runs.
    """
    stops = [stop for folder in folders for stop in read_records(folder / STOPS, Stopped)]
    if not stops:
        return []
    score = primary_score(load_manifest(run).scores)
    columns = [*word_columns("stop"), *figure_columns("n", "ended", "ended score", "calls", "saved")]
    columns += figure_columns("score", "difference", "difference at\nequal calls")
    suffix = f"_{folders[0].name}" if len(folders) == 1 else ""
    table = Table(columns, name=f"stops{suffix}", title="ended early")
    for figure in summarise_stops(stops, score):
        limit = figure.stop_probability
        row: list[Cell] = ["never" if limit is None else f"{limit:g}", figure.n]
        row += [figure.ended, _format(score, figure.ended_score)] if limit is not None else [None, None]
        row += [figure.calls, None if limit is None or figure.saved is None else text.percent(figure.saved)]
        row.append(_format(score, figure.score))
        differences = (figure.difference, figure.even_difference) if limit is not None else (None, None)
        table.rows.append([*row, *(_format_difference(score, difference) for difference in differences)])
    return [table]


def _make_selectors_table(name: str, figures: Sequence[RejudgedFigure]) -> Table:
    """Return a row per selector."""
    columns = [*word_columns("selector"), *figure_columns("n", "score", "difference", "same\nchoice", "calls")]
    table = Table(columns, name=name)
    for figure in figures:
        score = Score("", rate=figure.rate)
        table.rows.append(
            [
                figure.group,
                figure.n,
                _format(score, figure.now),
                _format_difference(score, figure.difference),
                _format(Score("", rate=True), figure.agreement),
                figure.calls,
            ]
        )
    return table


def _make_table(kind: Opinions, heading: str, name: str, figures: Sequence[RejudgedFigure]) -> Table:
    """Return a row per figure; a column that none has anything for is left out."""
    has_differences = any(figure.difference is not None for figure in figures)
    # opinions that agree or not can be fewer than those of either side
    has_sizes = any(figure.agreement is not None and figure.agreement.n != figure.n for figure in figures)
    # studies of earlier versions did not count them
    has_problems = any(figure.problems not in (None, figure.n) for figure in figures)
    columns = [*word_columns(heading), *figure_columns("n", *(["problems"] if has_problems else []))]
    columns += figure_columns("recorded", "now")
    columns += figure_columns(*(["difference"] if has_differences else []), "agreement")
    columns += figure_columns(*(["both\ndecided"] if has_sizes else []))
    table = Table(columns, name=name)
    for figure in figures:
        score = Score("", rate=figure.rate)
        cells: list[Cell] = [figure.group, figure.n, *([figure.problems] if has_problems else [])]
        cells += [_format(score, figure.recorded), _format(score, figure.now)]
        if has_differences:
            cells.append(_format_difference(score, figure.difference))
        is_share = kind == "duels" or (kind == "grades" and figure.rate)
        cells.append(_format(Score("", rate=is_share), figure.agreement))
        if has_sizes:
            cells.append(None if figure.agreement is None else figure.agreement.n)
        table.rows.append(cells)
    return table


def _format(score: Score, figure: Metric | None) -> str | None:
    if figure is None or figure.value is None:
        return None
    interval = "" if figure.ci95 is None else f" ({text.value_interval(score, figure.ci95)})"
    return f"{text.value(score, figure.value)}{interval}"


def _format_difference(score: Score, figure: Metric | None) -> str | None:
    if figure is None or figure.value is None:
        return None
    interval = "" if figure.ci95 is None else f" ({text.difference_interval(score, figure.ci95)})"
    return f"{text.difference(score, figure.value)}{interval}"

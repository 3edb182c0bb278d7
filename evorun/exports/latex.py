r"""The tables of a comparison for a paper: LaTeX with booktabs, every cell escaped, figures aligned at their points."""

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.reports.comparison import ComparedRuns, level_notes, notes, search_notes, tables
from evorun.reports.comparison.evolution import describe_overhead, make_overhead_table
from evorun.reports.comparison.findings import describe_changes, describe_finding
from evorun.reports.comparison.study import StudyReport
from evorun.reports.tables import Cell, Column, Table, show_words
from evorun.reports.text import MISSING, sentence

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\u2212": "$-$",
    MISSING: "--",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
}

_NUMBER = re.compile(r"\d[\d,]*(?:\.(\d+))?")


_TEXT_WIDTH = 345.0
r"""Points of a line in LaTeX's article class at 10 pt, narrower than those of most journals' full-width tables."""
_GAP = 6.0
r"""Points between two columns: twice the `\tabcolsep` that is set."""
_MAX_NAME = 130.0
_MIN_NAME = 60.0
"""Maximum and minimum points that a column of names takes before its cells wrap (ours)."""


_NAMES = ("reference", "run")
"""Headings of columns that stay when columns are chosen, beside the first one."""


class _Part(NamedTuple):
    """A table of the file."""

    label: str
    caption: str
    """Its first sentence, and what a reader must know beside it."""
    notes: str
    """The making of its figures, as comments for the text or an appendix."""
    table: Table


def comparison_tables(comparison: ComparedRuns, chosen: Sequence[str] = (), columns: Sequence[str] = ()) -> str:
    r"""Return all tables of a comparison's page as `table` environments with captions, in the page's order.

    Needs `\usepackage{booktabs}`, and `\usepackage[T1]{fontenc}` for quotes. The warnings of the page and the notes on
    its tables are comments; what makes figures no benchmark result (simulated models, a sample set) is said in each
    caption, too. No table is wider than a page of the article class: columns without room follow in a table of their
    own.

    chosen: names of tables (`name_table`), in this order. columns: those of each table that has any of them, by words
    of their headings, in this order; `accuracy+interval` puts both into one cell. Columns that name the rows stay.
    Raises ConfigError for a table or column that there is not.
    """
    origins = _describe_origins(comparison)
    found = {name_table(part.label): part for part in _list_parts(comparison) if part.table.rows}
    for name in chosen:
        if name not in found:
            raise ConfigError(f"tables: expected some of {', '.join(found)}, got {name}")
    parts_chosen = [found[name] for name in chosen] or list(found.values())
    if columns:
        parts_chosen = _choose_columns(parts_chosen, columns)
    parts = [_environment(part, origins) for part in parts_chosen]
    study = [] if comparison.study is None else [_make_paragraph(comparison.study)]
    return _comment(comparison.warnings) + "\n".join([*study, *parts])


def name_table(label: str) -> str:
    """Return the name by which a table is chosen, which `evorun.compare` gives it where it has it."""
    return {"main": "arms"}.get(label, label.replace("-", "_"))


def _choose_columns(parts: Sequence[_Part], columns: Sequence[str]) -> list[_Part]:
    """Return the tables with these columns alone; those with none of them as they are. Raises ConfigError."""
    headings = {" ".join(column.heading.split()): None for part in parts for column in part.table.columns}
    for word in (word for column in columns for word in column.split("+")):
        if not any(_find_column(part.table, word) is not None for part in parts):
            raise ConfigError(f"columns: expected words of some of {'; '.join(headings)}; got {word}")
    return [part._replace(table=_select(part.table, columns)) for part in parts]


def _find_column(table: Table, word: str) -> int | None:
    """Return the place of the column with this heading, else of the last with these words in it; None without any."""
    headings = [" ".join(column.heading.split()).lower() for column in table.columns]
    wanted = " ".join(word.replace("_", " ").lower().split())
    if wanted in headings:
        return headings.index(wanted)
    having = [at for at, heading in enumerate(headings) if f" {wanted} " in f" {re.sub(r'[(),]', '', heading)} "]
    return having[-1] if having else None  # of several intervals the last is the widest: over seeds and problems


def _select(table: Table, columns: Sequence[str]) -> Table:
    found = [[_find_column(table, word) for word in column.split("+")] for column in columns]
    wanted = [[place for place in places if place is not None] for places in found if None not in places]
    if not wanted:
        return table
    naming = len(list(itertools.takewhile(lambda column: column.kind != "figure", table.columns))) or 1
    names = [[place] for place in range(naming) if not place or table.columns[place].heading in _NAMES]
    kept = [*names, *wanted]
    made = []
    for places in kept:
        heading = " and ".join(table.columns[place].heading for place in places)
        made.append(table.columns[places[0]]._replace(format=show_words, heading=heading))
    rows: list[Sequence[Cell]] = [[_join([row[place] for place in places]) for places in kept] for row in table.shown()]
    return replace(table, columns=made, rows=rows)


def _join(cells: Sequence[str]) -> str:
    """Return cells as one: a figure, and what else is said of it in parentheses."""
    said = [cell for cell in cells[1:] if cell != MISSING]
    return f"{cells[0]} ({'; '.join(said)})" if said else cells[0]


def _make_paragraph(study: StudyReport) -> str:
    """Return the statement of a study, its file's whole SHA-256, and its answers as a paragraph of the text."""
    question, *lines = [_let_break(escape(line)) for line in study.lines]
    digest = r"\allowbreak{}".join(textwrap.wrap(study.recorded.digest, 8))
    beginning = rf"\paragraph{{{question.partition(':')[0]}.}} {question.partition(': ')[2]}"
    return "\n".join([beginning, *lines, f"SHA-256 of its file: {digest}.", ""])


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"% {' '.join(line.split())}\n" for line in lines)


def _describe_origins(comparison: ComparedRuns) -> str:
    """Say which of the runs are simulated, or on other data than the benchmark; empty where none is."""
    named = zip(("All runs", "Some runs"), comparison.origins, strict=True)
    return " ".join(f"{whose}: {', '.join(words)}." for whose, words in named if words)


def _list_parts(comparison: ComparedRuns) -> Iterator[_Part]:
    primary, pairs = notes.primary_words(comparison), comparison.pairs
    against = notes.pairs_heading(comparison)
    rows, runs, scores = comparison.rows, comparison.run_rows, comparison.common_scores
    main = tables.make_main_table(comparison, rows, [], scores)
    about = f"{notes.intervals_note(comparison)} {notes.cost_note(comparison)}"
    means = " Means over seeds, n in seeds x problems." if comparison.has_seeds else ""
    yield _Part("main", f"{primary} and cost.{means}", about, main)
    yield _Part("scores", f"scores.{means}", "", tables.make_scores_table(rows, comparison.omitted_scores))
    search = tables.make_search_table(rows, comparison.step)
    yield _Part("search", "search and judge.", search_notes.search_note(comparison), search)
    if comparison.strata:
        strata = tables.make_strata_table(comparison, rows, with_intervals=True)
        bracketed = any("[" in str(cell) for row in strata.rows for cell in row[1:])
        caption = f"{primary} by stratum{', with 95 % intervals' if bracketed else ''}."
        yield _Part("strata", caption, notes.strata_note(comparison), strata)
    yield _Part("reported-strata", "reported by stratum.", "", tables.make_reported_strata_table(comparison))
    yield _Part("reported-steps", "reported by training step.", "", tables.make_reported_steps_table(comparison))
    findings = " ".join([notes.pairs_note(comparison), *map(describe_finding, pairs.main_pairs)])
    adjusted = "95 % intervals are not adjusted for the number of comparisons; p (Holm) is."
    yield _Part("pairs", f"{against}. {adjusted}", findings, tables.make_pairs_table(pairs.main_pairs))
    score_pairs = tables.make_score_pairs_table(pairs.main_pairs, comparison.omitted_scores)
    yield _Part("score-pairs", f"{against}: scores.", notes.SCORE_PAIRS_NOTE, score_pairs)
    if comparison.level_pairs:
        by_level = tables.make_level_pairs_table(comparison.level_pairs)
        about = " ".join([*describe_changes(comparison.level_pairs), *level_notes.levels_notes(comparison)])
        yield _Part("level-pairs", f"{level_notes.levels_heading(comparison)}. {adjusted}", about, by_level)
    if comparison.strata_pairs:
        by_stratum = tables.make_strata_pairs_table(comparison.strata_pairs)
        about = notes.strata_pairs_note(comparison)
        yield _Part("strata-pairs", f"{against}, by stratum (exploratory). {adjusted}", about, by_stratum)
    yield _Part("rubrics", "cost of refinement.", describe_overhead(comparison), make_overhead_table(comparison))
    mean = ", means over seeds" if comparison.has_seeds else ""
    yield _Part(
        "run-cost",
        f"cost of whole runs{mean}.",
        notes.run_cost_note(comparison),
        tables.make_run_cost_table(comparison),
    )
    yield _Part("cost", "cost per problem, by role.", "", tables.make_cost_table(comparison))
    if runs:
        yield _Part("runs", "single runs.", "", tables.make_main_table(comparison, runs, [], scores))
        yield _Part("run-pairs", f"{against}, seed by seed.", "", tables.make_pairs_table(pairs.seed_pairs))


def _environment(part: _Part, origins: str) -> str:
    """Return a table as one or more `table` environments, which fit a page."""
    # names of arms may have points, too
    subject, about = [*re.split(r"\.(?: |$)", sentence(part.caption), maxsplit=1), ""][:2]
    environments = [_comment(re.split(r"(?<=\.) ", part.notes) if part.notes else ())]
    names, pieces = _lay_out(part.table)
    for number, piece in enumerate(pieces, 1):
        held = ", ".join(column.name for column in piece)
        said = subject if len(pieces) == 1 else f"{subject} ({number} of {len(pieces)}): {held}"
        caption = " ".join(filter(None, (f"{said}.", about.strip() if number == 1 else "", origins)))
        environments += [
            r"\begin{table}",
            r"\centering\small\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_let_break(escape(caption))}}}",
            rf"\label{{tab:{part.label}{f'-{number}' if number > 1 else ''}}}",
            _render_columns([*names, *piece]) + "\\end{table}\n",
        ]
    return environments[0] + "\n".join(environments[1:])


def render(table: Table) -> list[str]:
    """Return a table as `tabular`s that fit a page, figures aligned to the right and at their decimal points.

    Each begins with the columns that name the rows; columns without any figure are left out.
    """
    names, parts = _lay_out(table)
    return [_render_columns([*names, *part]) for part in parts]


def _lay_out(table: Table) -> tuple[list["_Column"], list[list["_Column"]]]:
    """Return the columns that name the rows, and the others in parts that fit beside these."""
    shown = [list(column) for column in zip(*table.shown(), strict=True)]
    filled = [
        (column, cells)
        for column, cells in zip(table.columns, shown, strict=True)
        if column.kind != "figure" or any(cell != MISSING for cell in cells)
    ]
    naming = len(list(itertools.takewhile(lambda pair: pair[0].kind != "figure", filled))) or 1
    # a row without one of its names could be any run's, so long names wrap rather than leave a part
    longest = min(_MAX_NAME, max(_TEXT_WIDTH * 0.4 / naming, _MIN_NAME))
    columns = [_Column(column, cells, longest) for column, cells in filled]
    names, others = columns[:naming], columns[naming:]
    room = _TEXT_WIDTH - sum(column.width + _GAP for column in names)
    parts: list[list[_Column]] = [[]]
    for group in _keep_together(others):
        if parts[-1] and sum(each.width + _GAP for each in [*parts[-1], *group]) > room:
            parts.append([])
        parts[-1] += group
    return names, parts


def _keep_together(columns: Sequence["_Column"]) -> list[list["_Column"]]:
    """Return the columns in groups: a figure with the first interval after it, which says how far to trust it."""
    groups: list[list[_Column]] = []
    for column in columns:
        if groups and len(groups[-1]) == 1 and "interval" in column.name and "interval" not in groups[-1][0].name:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


class _Column:
    """A column as LaTeX has it."""

    def __init__(self, column: Column, cells: Sequence[str], longest: float) -> None:
        """longest: points that a column of names takes before its cells wrap."""
        self.is_figure = column.kind == "figure"
        words = column.heading.split("\n")
        if len(words) == 1 and len(column.heading) > 12:  # two lines of about the same length
            words = textwrap.wrap(column.heading, max(len(column.heading) // 2 + 2, *map(len, column.heading.split())))
        self.name = " ".join(column.heading.split())
        self.heading = [escape(word) for word in words]
        widths = [*map(_estimate_width, [*cells, *words])]
        self.wraps = not self.is_figure and max(widths) > longest
        self.width = longest if self.wraps else max(widths)
        self.cells = [escape(cell) for cell in cells]
        if self.wraps:
            self.cells = [rf"\raggedright {_let_break(cell)}" if cell else "" for cell in self.cells]
        if self.is_figure:
            self.cells = _align(self.cells)

    @property
    def alignment(self) -> str:
        """The column's letter in a `tabular`."""
        return f"p{{{self.width:g}pt}}" if self.wraps else "r" if self.is_figure else "l"


def _let_break(escaped: str) -> str:
    """Let a long name break after its underscores, slashes, points and equals signs, but no decimal figure."""
    return re.sub(r"(\\_|[/=]|\.(?!\d))(?=[^ ])", r"\1\\allowbreak{}", escaped)


def _render_columns(columns: Sequence[_Column]) -> str:
    lines = max(len(column.heading) for column in columns)
    headings = [[*[""] * (lines - len(column.heading)), *column.heading] for column in columns]
    rows = list(zip(*(column.cells for column in columns), strict=True))
    grouped = any(not row[0] for row in rows)
    gaps = ["\\addlinespace\n" if grouped and number and row[0] else "" for number, row in enumerate(rows)]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{@{{}}{''.join(column.alignment for column in columns)}@{{}}}}",
            r"\toprule",
            *map(_line, zip(*headings, strict=True)),
            r"\midrule",
            *(f"{gap}{_line(row)}" for gap, row in zip(gaps, rows, strict=True)),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


_WIDTHS = {"ijl.,:;'|!": 2.6, "frtIs()[]-/ ": 3.7, "mwMW%+=<>\u2212": 7.8}
"""Points of characters of Computer Modern at 9 pt (`\\small`), rounded up."""


def _estimate_width(text: str) -> float:
    """Return about how many points a text takes, rather more than less."""
    return sum(
        next((width for group, width in _WIDTHS.items() if c in group), 6.6 if c.isupper() else 4.9) for c in text
    )


def escape(text: str) -> str:
    """Return a text that LaTeX typesets as it is; line breaks and control characters become spaces."""
    return "".join(_ESCAPES.get(character, character if character.isprintable() else " ") for character in text)


def _align(cells: Sequence[str]) -> list[str]:
    r"""Return a column's cells in which each number takes as many decimals as any at its place.

    Further decimals would claim a precision that the figure does not have, so they are invisible.
    """
    decimals = [[len(found[1] or "") for found in _NUMBER.finditer(cell)] for cell in cells]
    widest = [max(places) for places in zip_longest(*decimals, fillvalue=0)]

    def pad(cell: str) -> str:
        places = iter(widest)

        def fill(found: re.Match[str]) -> str:
            shown, wanted = found[0], next(places)
            point, has = ("" if found[1] else "."), len(found[1] or "")
            return shown + (rf"\phantom{{{point}{'0' * (wanted - has)}}}" if has < wanted else "")

        return _NUMBER.sub(fill, cell)

    return [pad(cell) for cell in cells]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \tabularnewline"

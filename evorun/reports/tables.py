"""One model of a table, and its renderings: in a terminal, on a page (macros.html.j2), and as a CSV file."""

import csv
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from evorun.reports.text import MISSING, count, number
from evorun.runs.printable import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | float | None
"""A text, or an unformatted figure; None for a missing one."""


def show_figure(cell: Cell) -> str:
    """Format a figure: a whole number as a count; a text has its format already."""
    if isinstance(cell, str):
        return cell
    return count(cell) if cell is not None and cell == int(cell) else number(cell)


def _show_fraction(cell: Cell) -> str:
    return cell if isinstance(cell, str) else number(cell)


def show_words(cell: Cell) -> str:
    """Show a text."""
    return MISSING if cell is None else str(cell)


_MAX_PROSE = 80
"""Characters of a line of a model's text (ours)."""


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    """A line break is where a narrow one may break."""
    format: Callable[..., str]
    """Formats a cell for a reader."""
    kind: Literal["words", "code", "figure"]
    """Figures are aligned to the right."""
    verbatim: bool = False
    """True for a heading from the data, whose first letter stays as it is."""
    max_width: int | None = None
    """Maximum width in a terminal, a file or a pipe, where texts of a model would be lines of any length."""

    def choose_format(self, cells: Sequence[Cell]) -> Callable[..., str]:
        """Return the format of these cells: beside a fraction no figure is a count, so that decimals align."""
        fractions = any(isinstance(cell, float) and cell != int(cell) for cell in cells)
        return _show_fraction if self.format is show_figure and fractions else self.format


def word_columns(*headings: str, format: Callable[..., str] = show_words) -> list[Column]:
    """Return columns that hold words."""
    return [Column(heading, format, "words") for heading in headings]


def prose_columns(*headings: str) -> list[Column]:
    """Return columns that hold texts that a model wrote, which are folded even where no terminal limits a table."""
    return [Column(heading, show_words, "words", max_width=_MAX_PROSE) for heading in headings]


def figure_columns(*headings: str, format: Callable[..., str] = show_figure, verbatim: bool = False) -> list[Column]:
    """Return columns that hold figures."""
    return [Column(heading, format, "figure", verbatim) for heading in headings]


@dataclass(frozen=True)
class Table:
    """A table of texts and figures; figures are unrounded and rates fractions where a file is to hold them."""

    columns: Sequence[Column]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    title: str = ""
    """Heads it in a terminal."""
    name: str = ""
    """Of its file, without the ending."""
    fields: Sequence[str] = ()
    """Names of the columns in the file; by default the headings."""
    grouped: int = 0
    """Number of leading columns whose cells a reader sees once for all rows that share them."""
    total: int | None = None
    """Position of the row that sums up the others."""
    caption: str = ""
    """Stands below it in a terminal."""

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]

    def shown(self) -> list[list[str]]:
        """Return the rows as a reader sees them: formatted, and without repeated names of groups."""
        by_column = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        formats = [column.choose_format(cells) for column, cells in zip(self.columns, by_column, strict=True)]
        rows = [[show(cell) for show, cell in zip(formats, row, strict=True)] for row in self.rows]
        repeated = [
            sum(rows[place][: last + 1] == rows[place - 1][: last + 1] for last in range(self.grouped)) if place else 0
            for place in range(len(rows))
        ]
        return [[""] * blanks + row[blanks:] for blanks, row in zip(repeated, rows, strict=True)]

    def csv(self) -> str:
        """Return the table as a CSV file (RFC 4180), a missing figure as an empty field."""
        buffer = io.StringIO()
        header = self.fields or self.headings
        csv.writer(buffer).writerows([header, *([escape_formula(cell) for cell in row] for row in self.rows)])
        return buffer.getvalue()

    def to_rich(self) -> "RichTable":
        """Return the table as the terminal prints it, with a gap before each group and before the total."""
        from rich import box
        from rich.table import Table as RichTable

        rows = self.shown()
        caption = f"{self.caption}\n" if self.caption else None  # a gap before what follows
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, caption=caption)
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if column.kind == "figure" else "left"
            table.add_column(column.heading, justify=justify, max_width=column.max_width)
        has_groups = any(not row[0] for row in rows if self.grouped)
        for place, row in enumerate(rows):
            if place == self.total or (has_groups and row[0]):
                table.add_section()
            table.add_row(*row)
        return table


def make_table(
    records: Sequence[Mapping[str, Cell]], words: Collection[str] = (), title: str = "", grouped: int = 0
) -> Table:
    """Return the table of records with the same keys: a column for each key for which any record has a cell.

    words: the keys of columns that hold words.
    """
    keys = [key for key in (records[0] if records else ()) if any(record[key] is not None for record in records)]
    columns = [(word_columns if key in words else figure_columns)(key)[0] for key in keys]
    return Table(columns, [[record[key] for key in keys] for record in records], title, grouped=grouped)


def make_data_table(name: str, fields: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """Return a table for other programs alone."""
    return Table(figure_columns(*fields), list(rows), name=name)


def escape_formula(cell: Cell) -> Cell:
    """Return a cell that a spreadsheet will not take for a formula, whatever a data set calls its strata."""
    if not isinstance(cell, str):
        return cell
    # https://owasp.org/www-community/attacks/CSV_Injection: the quote makes a spreadsheet show the rest as text
    shown = printable(cell)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@", "\t", "\r")) else shown

"""One model of a table, and its renderings: in a terminal, on a page (table.html.j2), and as a CSV file."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from evorun.reports.text import MISSING, count, number
from evorun.runs.printable import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | float | None
"""A text, or a figure as it is, in no format; None where there is none."""


def figure(cell: Cell) -> str:
    """Format a figure: a whole one as a count; one that is a text already has its format."""
    if isinstance(cell, str):
        return cell
    return count(cell) if cell is not None and cell == int(cell) else number(cell)


def as_it_is(cell: Cell) -> str:
    """Show a text."""
    return MISSING if cell is None else str(cell)


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    """A line break is where a narrow one may break."""
    format: Callable[..., str]
    """Shows a cell to a reader."""
    words: bool
    """False: figures, aligned to the right."""


def word_columns(*headings: str, format: Callable[..., str] = as_it_is) -> list[Column]:
    """Return columns that hold words."""
    return [Column(heading, format, True) for heading in headings]


def figure_columns(*headings: str, format: Callable[..., str] = figure) -> list[Column]:
    """Return columns that hold figures."""
    return [Column(heading, format, False) for heading in headings]


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
    """Names of the columns in the file; else the headings."""
    grouped: bool = False
    """True where rows belong to the last one above with words in its first cell."""
    total: int | None = None
    """Position of the row that sums up the others."""

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]

    def shown(self) -> list[list[str]]:
        """Return the rows as a reader sees them."""
        return [[column.format(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def csv(self) -> str:
        """Return the table as a CSV file (RFC 4180), a missing figure as an empty field."""
        buffer = io.StringIO()
        header = self.fields or self.headings
        csv.writer(buffer).writerows([header, *([_field(cell) for cell in row] for row in self.rows)])
        return buffer.getvalue()

    def in_terminal(self) -> "RichTable":
        """Return the table as the terminal prints it."""
        from rich import box
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for column in self.columns:
            table.add_column(column.heading, justify="left" if column.words else "right")
        for place, row in enumerate(self.shown()):
            if place == self.total or (self.grouped and row[0]):
                table.add_section()
            table.add_row(*row)
        return table


def data_table(name: str, fields: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """Return a table for other programs alone."""
    return Table(figure_columns(*fields), list(rows), name=name)


def _field(cell: Cell) -> Cell:
    """Return a cell that a spreadsheet will not take for a formula, whatever a data set calls its strata."""
    if not isinstance(cell, str):
        return cell
    # https://owasp.org/www-community/attacks/CSV_Injection: the quote makes a spreadsheet show the rest as text
    shown = printable(cell)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@", "\t", "\r")) else shown

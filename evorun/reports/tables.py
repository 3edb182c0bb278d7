"""Tables: in a terminal, and as CSV files."""

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evorun.runs.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | float | None
"""Of a table of data: a figure as it is, in no format; None where there is none."""


@dataclass(frozen=True)
class DataTable:
    """A table of figures for other programs: unrounded, rates as fractions, an interval's ends in two columns."""

    name: str
    """The file's name, without its ending."""
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """Return the table as a CSV file (RFC 4180), a missing figure as an empty field."""
        buffer = io.StringIO()
        csv.writer(buffer).writerows([self.columns, *([_field(cell) for cell in row] for row in self.rows)])
        return buffer.getvalue()


def _field(cell: Cell) -> Cell:
    """Return a cell that a spreadsheet will not take for a formula, whatever a data set calls its strata."""
    if not isinstance(cell, str):
        return cell
    # https://owasp.org/www-community/attacks/CSV_Injection: the quote makes a spreadsheet show the rest as text
    shown = printable(cell)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@", "\t", "\r")) else shown


def new_table(title: str, *columns: str, left: Collection[int] = (0,)) -> "Table":
    """Return an empty table; columns in `left` hold words, the others figures."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index in left else "right")
    return table

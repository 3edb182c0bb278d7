"""The console and the log formatter that make every text, trusted or not, safe to print."""

import logging
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from evorun.runs.printable import printable

_MAX_WIDTH = 10_000
"""Maximum width of a table, in characters."""
_MAX_WORD = 80
"""Maximum length of a word that a table keeps unbroken (ours): longer than ids of problems and models."""


class Terminal(Console):
    """The program's only console: it prints each text verbatim but safe; styles never come from markup in a text."""

    def __init__(self, **settings: Any) -> None:
        """settings: those of `Console`, except markup ([/x]), emoji (:x:) and highlighting, which are off."""
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a text, a table, ...; everything that Rich prints passes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def print_table(self, table: Table) -> None:
        """Print a table unless it has no rows; it overflows the terminal rather than cut off a figure.

        Lines wrap only between words, and not at all where the output is no terminal.
        """
        if table.rows:
            self.print(self.fit_table(table), crop=False, no_wrap=True, overflow="ignore")

    def fit_table(self, table: Table) -> Table:
        """Return the table, as wide as `print_table` prints it."""
        for column in table.columns:
            # a minimum width: Rich would rather break a figure in two than let a table be too wide
            cells = [cell if isinstance(cell, str) else getattr(cell, "plain", "") for cell in column.cells]
            words = [word for cell in cells for word in (cell.split() if column.justify == "left" else [cell])]
            words += str(column.header).split("\n" if column.justify != "left" else None)
            column.min_width = min(max(map(cell_len, words), default=0), _MAX_WORD)
        measured = self.measure_table(table)
        widest = self.width if self.is_terminal else measured.maximum
        table.width = min(measured.maximum, max(widest, measured.minimum))
        return table

    def measure_table(self, table: Table) -> Measurement:
        """Return the minimum and the maximum width of a table."""
        return self.measure(table, options=self.options.update(width=_MAX_WIDTH))


class LogFormatter(logging.Formatter):
    """A formatter whose output is safe to print on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, followed by any traceback."""
        return printable(super().format(record))

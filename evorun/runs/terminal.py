"""The way of all texts to a terminal and to the log: foreign ones among them are shown, and steer nothing."""

import logging
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from evorun.runs.printable import printable

_WIDE = 10_000
"""Characters: no table is wider."""
_LONGEST_WORD = 80
"""Characters of a word that no table breaks (ours: longer than ids of problems and of models)."""


class Terminal(Console):
    """The one console: it shows every text as it is, and printable; styles are given beside a text, never in it."""

    def __init__(self, **settings: Any) -> None:
        """settings: of `Console`, but for those that read a text: no markup ([/x]), no emoji (:x:), no highlights."""
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a text, a table, ...; whatever Rich prints comes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def print_table(self, table: Table) -> None:
        """Print a table, unless it has no rows: over the edge of the terminal rather than without a figure's end.

        Only words wrap, and only between them; where no terminal limits a line, none does.
        """
        if not table.rows:
            return
        for column in table.columns:
            # a minimum width, as Rich would break a figure in two before it lets a table be too wide
            cells = [cell if isinstance(cell, str) else getattr(cell, "plain", "") for cell in column.cells]
            words = [word for cell in cells for word in (cell.split() if column.justify == "left" else [cell])]
            words += str(column.header).split("\n" if column.justify != "left" else None)
            column.min_width = min(max(map(cell_len, words), default=0), _LONGEST_WORD)
        measured = self.measure_table(table)
        widest = self.width if self.is_terminal else measured.maximum
        table.width = min(measured.maximum, max(widest, measured.minimum))
        self.print(table, crop=False, no_wrap=True, overflow="ignore")

    def measure_table(self, table: Table) -> Measurement:
        """Return the width of a table, and the least that it can have."""
        return self.measure(table, options=self.options.update(width=_WIDE))


class LogFormatter(logging.Formatter):
    """A formatter for a log that is read on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and the traceback below it."""
        return printable(super().format(record))

"""The console and the log formatter that make every text, trusted or not, safe to print."""

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table

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
        self.soft_wrap = not self.limits_tables  # in a file or a pipe sentences stay whole, too
        self._after_text = False

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a text, a table, ...; everything that Rich prints passes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print texts; those of a file or a pipe are not wrapped, unless COLUMNS is set."""
        super().print(*objects, **settings)
        self._after_text = bool(objects)

    def print_table(self, table: Table) -> None:
        """Print a table unless it has no rows; what is too wide for a terminal continues below, column by column.

        A title stands apart from the text before it. Lines wrap only between words. In a file or a pipe they are whole
        and end without spaces, unless COLUMNS is set.
        """
        if not table.rows:
            return
        if table.title and self._after_text:
            self.line()
        if self.is_terminal:
            for part in self.fit_table(table):
                self.print(part, crop=False, no_wrap=True, overflow="ignore")
            self._after_text = False
            return
        with self.capture() as captured:
            for part in self.fit_table(table):
                self.print(part, crop=False, no_wrap=True, overflow="ignore")
        self.print("\n".join(line.rstrip() for line in captured.get().splitlines()), soft_wrap=True)
        self._after_text = False

    @property
    def limits_tables(self) -> bool:
        """True where tables fit a width: the terminal's, or in a file or a pipe that of the variable COLUMNS."""
        return self.is_terminal or os.environ.get("COLUMNS", "").isdigit()

    def fit_table(self, table: Table) -> list[Table]:
        """Return a table as parts that fit the width, each with the columns that name the rows."""
        if not self.limits_tables:
            _keep_whole(table, _MAX_WIDTH)
            _set_widths(table.columns, _MAX_WIDTH)
            table.width = self.measure_table(table).maximum
            return [table]
        # an id stays whole, to be copied, unless it leaves no room for any other column
        for max_word in (_MAX_WORD, self.width // 2):
            _keep_whole(table, max_word)
            parts = self._split(table)
            measured = [self._measure_minimum(table, part.columns) for part in parts]
            if all(width <= self.width for width in measured):
                break
        for part, width in zip(parts, measured, strict=True):
            _set_widths(part.columns, self.width - width)
        return parts

    def _split(self, table: Table) -> list[Table]:
        """Return a table's columns as tables of which each fits, as far as single columns do."""
        names = list(itertools.takewhile(_is_text, table.columns)) or table.columns[:1]
        while len(names) > 1 and sum(column.min_width or 0 for column in names) > self.width // 2:
            names.pop()
        parts = [[*names]]
        for column in table.columns[len(names) :]:
            if len(parts[-1]) > len(names) and self._measure_minimum(table, [*parts[-1], column]) > self.width:
                parts.append([*names])
            parts[-1].append(column)
        if len(parts) == 1:
            return [table]
        for before, after in itertools.pairwise(parts):
            beside = [*names, before[-1], *after[len(names) :]]
            alone = len(after) == len(names) + 1 and len(before) > len(names) + 2
            if alone and self._measure_minimum(table, beside) <= self.width:
                after.insert(len(names), before.pop())
        tables = [_with_columns(table, columns) for columns in parts]
        for part in tables[1:]:
            title = f"{table.title} (continued)" if table.title else "(continued)"
            part.title = title if cell_len(title) <= self.width else "(continued)"
        for part in tables[:-1]:
            part.caption = None
        return tables

    def measure_table(self, table: Table) -> Measurement:
        """Return the minimum and the maximum width of a table."""
        return self.measure(table, options=self.options.update(width=_MAX_WIDTH))

    def _measure_minimum(self, table: Table, columns: Sequence[Column]) -> int:
        """Return the width of a table of these columns when each has its minimum width."""
        narrow = [replace(column, width=column.min_width) for column in columns]
        return self.measure_table(_with_columns(table, narrow)).maximum  # Rich looks into no cell of such columns


def _keep_whole(table: Table, max_word: int) -> None:
    """Set minimum widths: Rich would rather break a figure in two than let a table be too wide.

    max_word: maximum length of a word that a column of texts keeps unbroken.
    """
    for column in table.columns:
        words = [word for line in _list_lines(column) for word in (line.split() if _is_text(column) else [line])]
        column.min_width = max(map(cell_len, words), default=0)
        if _is_text(column) and column.min_width > max_word:
            column.min_width = column.max_width = max_word
            column.overflow = "fold"


def _set_widths(columns: Sequence[Column], room: int) -> None:
    """Share the room beside the minimum widths out among the columns of texts, to the narrowest that needs it first.

    Rich takes room from the widest columns, even from figures.
    """
    needs = [
        min(max(map(cell_len, _list_lines(column)), default=0), column.max_width or _MAX_WIDTH) for column in columns
    ]
    widths = [column.min_width or 0 for column in columns]
    for _ in range(room):
        wanting = [place for place, width in enumerate(widths) if width < needs[place]]
        if not wanting:
            break
        widths[min(wanting, key=widths.__getitem__)] += 1
    for column, width in zip(columns, widths, strict=True):
        column.width = width


def _is_text(column: Column) -> bool:
    return column.justify == "left"


def _list_lines(column: Column) -> list[str]:
    """Return the lines of a column's heading and cells."""
    cells = [column.header, *column.cells]
    texts = [cell if isinstance(cell, str) else getattr(cell, "plain", "") for cell in cells]
    return [line for text in texts for line in text.split("\n")]


def _with_columns(table: Table, columns: Sequence[Column]) -> Table:
    """Return a table with some columns of another one, and its rows."""
    part = copy(table)
    part.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
    return part


class LogFormatter(logging.Formatter):
    """A formatter whose output is safe to print on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, followed by any traceback."""
        return printable(super().format(record))

"""The way of all texts to a terminal and to the log: foreign ones among them are shown, and steer nothing."""

import logging
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from evorun.runs.printable import printable


class Terminal(Console):
    """A console that shows every text printable; its own styles and movements of the cursor are no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a text, a table, ...; whatever Rich prints comes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class LogFormatter(logging.Formatter):
    """A formatter for a log that is read on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and the traceback below it."""
        return printable(super().format(record))

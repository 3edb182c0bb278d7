"""Tables and escapes of the Markdown that the reference's pages are written in."""

import re
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown, of which line ends and bars are made safe here."""
    cells = [list(columns), ["---"] * len(columns), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in cells) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def lines(*parts: str) -> str:
    """Return the parts that there are, each on a line of its own in a cell."""
    return "<br>".join(filter(None, parts))


def prose(text: str) -> str:
    """Return a comment or a docstring as Markdown: code between backticks stays, all else is plain text.

    Python's None is null, as in YAML and JSON.
    """
    parts = re.split(r"(`[^`]*`)", re.sub(r"\bNone\b", "null", text))
    return "".join(
        part if number % 2 else re.sub(r"([\\<>*_\[\]`~$#{}])", r"\\\1", part) for number, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Return a value as code; nothing stays nothing."""
    return f"`{text}`" if text else ""

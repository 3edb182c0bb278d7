"""Small tables for notebooks; every text in them is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from evorun.runs.printable import printable

MAX_ROWS = 20
"""Maximum rows of a table (ours): data frames have all."""


def make_html_table(headings: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{_safe(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    top = f"<caption>{_safe(caption)}</caption>" if caption else ""
    return f"<table>{top}{f'<thead><tr>{head}</tr></thead>' if headings else ''}<tbody>{body}</tbody></table>"


def _safe(text: object) -> str:
    return escape(printable("" if text is None else text))

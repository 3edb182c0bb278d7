"""Foreign texts on a terminal and in a log."""

import io
import logging

from rich.table import Table
from rich.text import Text

from evorun.runs.terminal import LogFormatter, Terminal

STEERING = "a\x1b[2J\x9b31m\u202eb"


def test_what_is_printed_steers_nothing_and_styles_stay() -> None:
    output = io.StringIO()
    terminal = Terminal(file=output, force_terminal=True, color_system="standard", width=60, highlight=False)
    table = Table(title=Text(STEERING), caption=STEERING)
    table.add_column(Text(STEERING))
    table.add_row(Text(STEERING, style="red"))
    terminal.print(table)
    terminal.print(STEERING, Text(STEERING), markup=False)
    terminal.rule(STEERING)
    assert "\x1b[2J" not in output.getvalue()
    assert not {"\x9b", "\u202e"} & set(output.getvalue())
    assert "a\u241b[2J\ufffd31m\ufffdb" in output.getvalue()
    assert "\x1b[31m" in output.getvalue()  # the cell's own red


def test_what_is_logged_steers_nothing() -> None:
    try:
        raise ValueError(STEERING)
    except ValueError as error:
        record = logging.LogRecord("evorun", logging.ERROR, "", 0, "%s", (STEERING,), (ValueError, error, None))
    line = LogFormatter("%(message)s").format(record)
    assert line.splitlines()[0] == "a\u241b[2J\ufffd31m\ufffdb"
    assert line.count("\u241b") == 2
    assert "\x1b" not in line
